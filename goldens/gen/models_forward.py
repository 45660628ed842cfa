"""The Llama forward in float64 numpy: the generators' second opinion beside Hugging Face.

It is used to refuse models and prompts that prove nothing: with K and V rounded to f16 as the
engine does (which must move the logits little), and with one bug each (which must move them a
lot). Nothing of it is written as an expected value.
"""
import numpy as np

# The four that the contract names, in both readings of s15, and further public bugs. The last
# column says for which models the bug shows at all.
MUTANTS = {
    "s15-v-slab-holds-k": lambda c: True,
    "s15-k-slab-empty": lambda c: True,
    "s16-no-final-norm": lambda c: True,
    "s20-rope-reversed": lambda c: True,
    "s22-silu-on-up": lambda c: True,
}
EXTRA = {
    "gqa-tiled": lambda c: 1 < c["kv"] < c["heads"],
    "rope-interleaved": lambda c: True,
    "theta-10000": lambda c: c["theta"] != 10000.0,
    "scale-of-hidden": lambda c: c["head_dim"] * c["heads"] != c["hidden"],
    "eps-1e-6": lambda c: c["eps"] > 1e-5,
}


def shape_of(config):
    """The numbers of a config.json that the forward needs, absent keys filled in."""
    heads = config["num_attention_heads"]
    theta = config.get("rope_theta")
    for key in ("rope_parameters", "rope_scaling"):
        theta = theta or (config.get(key) or {}).get("rope_theta")
    return {
        "vocab": config["vocab_size"],
        "hidden": config["hidden_size"],
        "ffn": config["intermediate_size"],
        "layers": config["num_hidden_layers"],
        "heads": heads,
        "kv": config.get("num_key_value_heads") or heads,
        "head_dim": config.get("head_dim") or config["hidden_size"] // heads,
        "context": config.get("max_position_embeddings") or 2048,
        "eps": config["rms_norm_eps"],
        "theta": theta or 10000.0,
        "tied": config.get("tie_word_embeddings", False),
    }


def silu(x):
    return x / (1.0 + np.exp(-x))


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def rope_tables(c, n, bug):
    """cos and sin [n, D/2]; the angle is formed in float32 as Hugging Face does."""
    half = c["head_dim"] // 2
    theta = 10000.0 if bug == "theta-10000" else c["theta"]
    inv = (theta ** (-np.arange(half) * 2.0 / c["head_dim"])).astype(np.float32)
    if bug == "s20-rope-reversed":
        inv = inv[::-1]
    angle = (np.arange(n, dtype=np.float32)[:, None] * inv[None, :]).astype(np.float64)
    return np.cos(angle), np.sin(angle)


def rotate(x, cos, sin, bug):
    """x [n, heads, D]."""
    cos, sin = cos[:, None, :], sin[:, None, :]
    half = x.shape[-1] // 2
    if bug == "rope-interleaved":
        a, b = x[..., 0::2], x[..., 1::2]
        return np.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(x.shape)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attention(c, q, k, v, bug):
    """Causal attention [n, heads, D] over the same n tokens' k and v [n, kv, D]."""
    n, heads, group = q.shape[0], c["heads"], c["heads"] // c["kv"]
    owner = np.arange(heads) % c["kv"] if bug == "gqa-tiled" else np.arange(heads) // group
    scale_dim = c["hidden"] / heads if bug == "scale-of-hidden" else c["head_dim"]
    scores = np.einsum("qhd,khd->hqk", q, k[:, owner]) / np.sqrt(scale_dim)
    scores = np.where(np.tril(np.ones((n, n), dtype=bool)), scores, -np.inf)
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    scores /= scores.sum(axis=-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", scores, v[:, owner])


def forward(c, weights, ids, f16_kv=False, bug=None):
    """(last hidden state [n, hidden] after the final norm, logits of the last token)."""
    def linear(x, name):
        return x @ weights[name + ".weight"].astype(np.float64).T

    eps = 1e-6 if bug == "eps-1e-6" else c["eps"]
    x = weights["model.embed_tokens.weight"].astype(np.float64)[list(ids)]
    n = len(ids)
    cos, sin = rope_tables(c, n, bug)
    for layer in range(c["layers"]):
        at = f"model.layers.{layer}."
        h = rms_norm(x, weights[at + "input_layernorm.weight"], eps)
        q = linear(h, at + "self_attn.q_proj").reshape(n, c["heads"], -1)
        k = linear(h, at + "self_attn.k_proj").reshape(n, c["kv"], -1)
        v = linear(h, at + "self_attn.v_proj").reshape(n, c["kv"], -1)
        q, k = rotate(q, cos, sin, bug), rotate(k, cos, sin, bug)
        if f16_kv:
            k = k.astype(np.float32).astype(np.float16).astype(np.float64)
            v = v.astype(np.float32).astype(np.float16).astype(np.float64)
        if bug == "s15-v-slab-holds-k":
            v = k
        if bug == "s15-k-slab-empty":
            k = np.zeros_like(k)
        o = attention(c, q, k, v, bug)
        x = x + linear(o.reshape(n, -1), at + "self_attn.o_proj")
        h = rms_norm(x, weights[at + "post_attention_layernorm.weight"], eps)
        gate, up = linear(h, at + "mlp.gate_proj"), linear(h, at + "mlp.up_proj")
        act = gate * silu(up) if bug == "s22-silu-on-up" else silu(gate) * up
        x = x + linear(act, at + "mlp.down_proj")
    if bug != "s16-no-final-norm":
        x = rms_norm(x, weights["model.norm.weight"], eps)
    return x, x[-1] @ head(c, weights).T


def head(c, weights):
    """The matrix that turns a last hidden state into logits: the embedding itself when tied."""
    name = "model.embed_tokens.weight" if c["tied"] else "lm_head.weight"
    return weights[name].astype(np.float64)


def moved(got, want):
    """The largest difference, in units of the largest |want|: what max_abs compares."""
    return float(np.abs(np.asarray(got, dtype=np.float64) - want).max() / np.abs(want).max())


def greedy(c, weights, ids, steps):
    """Greedy ids by the float64 forward."""
    ids = list(ids)
    for _ in range(steps):
        ids.append(int(forward(c, weights, ids)[1].argmax()))
    return ids[-steps:]


def multiply_adds(c, n, logits=1):
    """What an engine needs to run n tokens: linears, attention, and `logits` rows of the head."""
    q, kv = c["heads"] * c["head_dim"], c["kv"] * c["head_dim"]
    layer = c["hidden"] * (2 * q + 2 * kv + 3 * c["ffn"])
    return c["layers"] * (n * layer + n * (n + 1) // 2 * 2 * q) + logits * c["hidden"] * c["vocab"]
