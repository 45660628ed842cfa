"""spec/config.md: config.json, row by row."""
import math
import os

import numpy as np

from .refusal import Refusal, need
from .safetensors import read_whole
from .strict_json import Real, parse_object

LONGEST = 1 << 20
MOST_COUNT = 1 << 24
FOREIGN = ("quantization_config", "quantization", "compression_config", "text_config",
           "num_local_experts", "no_rope_layers", "attn_logit_softcapping",
           "final_logit_softcapping", "logit_scale", "logits_scaling", "embedding_multiplier",
           "residual_multiplier", "attention_multiplier", "auto_map")
BIASES = "attention_bias", "mlp_bias", "bias", "qkv_bias", "use_qk_norm"


def real(value, key):
    """A real, which may be written as an integer; the f64 that the text means."""
    need(type(value) is int or isinstance(value, Real), "FORMAT",
         f"{key} is {value!r}, a number is needed")
    return float(value)


def positive_real(value, key):
    number = real(value, key)
    rounded = float(np.float32(number))
    need(math.isfinite(number) and math.isfinite(rounded) and rounded > 0, "FORMAT",
         f"{key} is {value!r}, it must be above 0 and finite, also when rounded to f32")
    return number


class Keys:
    """The members of one object; null counts as absent."""

    def __init__(self, members):
        self.members = {k: v for k, v in members.items() if v is not None}

    def get(self, key):
        return self.members.get(key)

    def typed(self, key, kind, words):
        value = self.get(key)
        need(value is None or type(value) is kind, "FORMAT",
             f"{key} is {value!r}, {words} is needed")
        return value

    def one_of(self, key, allowed, required=False):
        """A string from a list."""
        value = self.typed(key, str, "a string")
        need(value in allowed or (value is None and not required), "UNSUPPORTED",
             f"{key} is {value!r}, only {', '.join(allowed)} can be run")
        return value

    def off(self, key):
        need(not self.typed(key, bool, "a boolean"), "UNSUPPORTED",
             f"{key} is true, which cannot be run")

    def one(self, key, where=""):
        """partial_rotary_factor: absent or 1."""
        value = self.get(key)
        need(value is None or real(value, key) == 1, "UNSUPPORTED",
             f"{where}{key} is {value!r}, only 1 can be run")

    def count(self, key, default=None, most=MOST_COUNT, least=1):
        value = self.typed(key, int, "an integer")
        if value is None:
            value = default
        need(value is not None, "FORMAT", f"{key} is missing")
        need(least <= value <= most, "FORMAT",
             f"{key} is {value}, it must be from {least} to {most}")
        return value


def check_list(keys, key, length, allowed):
    """A list of known names: architectures, layer_types."""
    names = keys.typed(key, list, "a list")
    if names is None:
        return
    need(all(isinstance(name, str) for name in names), "FORMAT",
         f"{key} is {names!r}, a list of strings is needed")
    need(length in (None, len(names)) and all(name in allowed for name in names), "UNSUPPORTED",
         f"{key} is {names!r}, only {' or '.join(allowed)} can be run")


def check_rope(keys, key, type_needed):
    """config#rope_scaling; returns the members, or None where the object is absent."""
    value = keys.typed(key, dict, "an object")
    if value is None:
        return None
    inner = Keys(value)
    kinds = [inner.typed(k, str, "a string") for k in ("rope_type", "type")]
    for kind in kinds:
        need(kind in (None, "default"), "UNSUPPORTED",
             f"{key} has the rope type {kind!r}, only 'default' can be run")
    for k, v in inner.members.items():
        need(k in ("rope_type", "type", "rope_theta", "partial_rotary_factor"), "UNSUPPORTED",
             f"{key} has {k} = {v!r}, which cannot be run")
    inner.one("partial_rotary_factor", key + ": ")
    need(not type_needed or any(kinds), "UNSUPPORTED",
         f"{key} has neither rope_type nor type, which cannot be run")
    return inner


def read_theta(keys, *inside):
    """config#rope_theta: places that say it must agree."""
    places = [k.get("rope_theta") for k in (keys, *inside) if k is not None]
    thetas = [positive_real(v, "rope_theta") for v in places if v is not None]
    need(len(set(thetas)) < 2, "FORMAT", f"rope_theta disagrees with itself: {thetas}")
    return thetas[0] if thetas else 10000.0


def check_supported(keys):
    """The rows whose status is UNSUPPORTED."""
    keys.one_of("model_type", ("llama", "mistral"))
    check_list(keys, "architectures", 1, ("LlamaForCausalLM", "MistralForCausalLM"))
    for key in FOREIGN:
        need(keys.get(key) is None, "UNSUPPORTED",
             f"{key} is {keys.get(key)!r}, which changes the result and cannot be run")
    windowed = keys.typed("use_sliding_window", bool, "a boolean") is not False
    need(not windowed or keys.get("sliding_window") is None, "UNSUPPORTED",
         f"sliding_window is {keys.get('sliding_window')!r}, which cannot be run")
    check_list(keys, "layer_types", None, ("full_attention",))
    for key in BIASES:
        keys.off(key)
    keys.one("partial_rotary_factor")
    keys.one_of("position_embedding_type", ("rope",))
    for key in "hidden_act", "hidden_activation":
        keys.one_of(key, ("silu", "swish"))


def read_eos(keys, vocab_size):
    value = keys.get("eos_token_id")
    if value is None:
        return []
    ids = value if isinstance(value, list) else [value]
    need(all(type(i) is int and 0 <= i < vocab_size for i in ids), "FORMAT",
         f"eos_token_id is {value!r}, ids from 0 to {vocab_size - 1} are needed")
    need(1 <= len(ids) <= 16 and len(set(ids)) == len(ids), "FORMAT",
         f"eos_token_id is {value!r}, 1 to 16 distinct ids are needed")
    return ids


def read_heads(keys, config):
    d, heads = config["hidden_size"], config["n_heads"]
    kv_heads = keys.count("num_key_value_heads", heads)
    need(heads % kv_heads == 0, "FORMAT",
         f"num_key_value_heads is {kv_heads}, it must divide the {heads} num_attention_heads")
    need(keys.get("head_dim") is not None or d % heads == 0, "FORMAT",
         f"head_dim is absent, and hidden_size {d} / num_attention_heads {heads} is not whole")
    head_dim = keys.count("head_dim", d // heads, least=0)
    need(head_dim >= 2 and head_dim % 2 == 0, "FORMAT",
         f"head_dim is {head_dim}, it must be even and at least 2")
    config["n_kv_heads"], config["head_dim"] = kv_heads, head_dim


def check_products(config):
    """Every matrix in bytes of f32 has to be a number of 64 bits."""
    d, width = config["hidden_size"], config["n_heads"] * config["head_dim"]
    for rows in config["vocab_size"], config["intermediate_size"], width:
        need(rows * d * 4 < 2**64, "FORMAT",
             f"a matrix of {rows} rows and hidden_size {d} columns overflows")


def read_common(keys):
    """What the bigram reads, too."""
    arch = keys.one_of("tl_arch", ("llama", "bigram"), required=True)
    tokenizer = keys.one_of("tl_tokenizer", ("byte", "bpe"), required=True)
    return {"arch": arch, "tokenizer": tokenizer}


def parse_config(data):
    """The fields of tl_model_config. The bigram has the shape of its pool and no more."""
    keys = Keys(parse_object(data, LONGEST, 100_000, "config.json"))
    config = read_common(keys)
    llama = config["arch"] == "llama"
    if llama:
        check_supported(keys)
        scaling = check_rope(keys, "rope_scaling", type_needed=True)
        parameters = check_rope(keys, "rope_parameters", type_needed=False)
    vocab_size = keys.count("vocab_size")
    need(config["tokenizer"] != "byte" or vocab_size >= 256, "FORMAT",
         f"vocab_size is {vocab_size}, the tokenizer 'byte' needs at least 256")
    config.update(vocab_size=vocab_size, hidden_size=0, intermediate_size=0, n_layers=1, n_heads=1,
                  n_kv_heads=1, head_dim=2, rope_theta=0.0, rms_norm_eps=0.0,
                  max_positions=keys.count("max_position_embeddings", 2048),
                  tie_word_embeddings=False, eos_token_ids=read_eos(keys, vocab_size))
    if llama:
        config["hidden_size"] = keys.count("hidden_size")
        config["intermediate_size"] = keys.count("intermediate_size")
        config["n_layers"] = keys.count("num_hidden_layers", most=1 << 16)
        config["n_heads"] = keys.count("num_attention_heads")
        read_heads(keys, config)
        need(keys.get("rms_norm_eps") is not None, "FORMAT", "rms_norm_eps is missing")
        config["rms_norm_eps"] = positive_real(keys.get("rms_norm_eps"), "rms_norm_eps")
        config["rope_theta"] = read_theta(keys, scaling, parameters)
        config["tie_word_embeddings"] = bool(keys.typed("tie_word_embeddings", bool, "a boolean"))
        check_products(config)
    return config


def load_config(directory):
    try:
        return parse_config(read_whole(os.path.join(directory, "config.json"), LONGEST))
    except Refusal as e:
        e.text = f"config.json: {e.text}"
        raise
