"""spec/forward.md: the step of Llama and of the bigram, and run_once.

Every row of x meets a matrix in a product of its own, and every token its keys: what a row gives
can then not depend on what else is in the step, to the bit, whatever the library underneath does
with larger matrices.
"""
import numpy as np

from .numbers16 import f32_to_f16
from .refusal import need

F32 = np.float32


def linear(x, w):
    """y = x W^T for rows of x [m, in], w [out, in]: m products of a matrix and a vector."""
    return np.matmul(w, x[:, :, None])[:, :, 0]


def rms_norm(x, w, eps):
    mean = np.matmul(x[:, None, :], x[:, :, None])[:, :, 0] / F32(x.shape[1])
    return x / np.sqrt(mean + eps) * w


def silu(g):
    return g / (F32(1) + np.exp(-g))


class Sequence:
    """New tokens at the positions from `start` on, and the block table."""

    def __init__(self, tokens, start, blocks):
        self.tokens, self.start, self.blocks = tokens, start, blocks
        self.end = start + len(tokens)


class Llama:
    def __init__(self, config, tensors):
        self.c = config
        self.t = tensors
        half = np.arange(config["head_dim"] // 2, dtype=np.float64)
        self.inv_freq = (config["rope_theta"] ** (-2 * half / config["head_dim"])).astype(F32)
        self.scale = F32(1 / np.sqrt(np.float64(config["head_dim"])))
        self.eps = F32(config["rms_norm_eps"])

    def rotate(self, x, cos, sin):
        """forward#rope: x [T, heads, D]; the pairs are the two halves of a head."""
        half = x.shape[2] // 2
        x1, x2 = x[:, :, :half], x[:, :, half:]
        return np.concatenate((x1 * cos - x2 * sin, x2 * cos + x1 * sin), axis=2)

    def attention(self, q, keys, values, start):
        """forward#attention for q [T, H, D]; keys and values are [H_kv, positions, D]."""
        heads = self.c["n_kv_heads"]
        out = np.empty_like(q)
        for i, row in enumerate(q):
            n = start + i + 1
            row = row.reshape(heads, -1, self.c["head_dim"])
            s = np.matmul(row, keys[:, :n].transpose(0, 2, 1)) * self.scale
            e = np.exp(s - s.max(axis=2, keepdims=True))
            o = np.matmul(e, values[:, :n]) / e.sum(axis=2, keepdims=True)
            out[i] = o.reshape(out[i].shape)
        return out

    def step(self, pool, seq):
        """The residual stream of every new token; K and V go to the slabs, as f16."""
        c, t = self.c, self.t
        d = c["head_dim"]
        pos = np.arange(seq.start, seq.end)
        table = np.array(seq.blocks[:-(-seq.end // pool.block_tokens)], np.int64)
        blocks, slots = table[pos // pool.block_tokens], pos % pool.block_tokens
        angle = (pos.astype(F32)[:, None] * self.inv_freq).astype(np.float64)
        cos = np.cos(angle).astype(F32)[:, None, :]
        sin = np.sin(angle).astype(F32)[:, None, :]

        def heads(x):
            return x.reshape(len(pos), -1, d)

        def slab(layer, side):
            """All positions so far, [H_kv, positions, D]."""
            halves = pool.kv[table, layer, side].view(np.float16).astype(F32)
            return halves.transpose(1, 0, 2, 3).reshape(c["n_kv_heads"], -1, d)

        x = t["embed"][seq.tokens]
        for number, layer in enumerate(t["layers"]):
            h = rms_norm(x, layer["norm1"], self.eps)
            q = self.rotate(heads(linear(h, layer["q"])), cos, sin)
            k = self.rotate(heads(linear(h, layer["k"])), cos, sin)
            pool.kv[blocks, number, 0, :, slots] = f32_to_f16(k)
            pool.kv[blocks, number, 1, :, slots] = f32_to_f16(heads(linear(h, layer["v"])))
            o = self.attention(q, slab(number, 0), slab(number, 1), seq.start)
            x = x + linear(o.reshape(len(pos), -1), layer["o"])
            h = rms_norm(x, layer["norm2"], self.eps)
            x = x + linear(silu(linear(h, layer["gate"])) * linear(h, layer["up"]), layer["down"])
        return x

    def hidden(self, x):
        return rms_norm(x, self.t["norm"], self.eps)

    def logits(self, seq, x):
        return linear(self.hidden(x[-1:]), self.t["head"])[0]


class Bigram:
    def __init__(self, config, tensors):
        self.weight = tensors["bigram"]

    def step(self, pool, seq):
        """Writes nothing."""

    def hidden(self, x):
        """There are no hidden values."""

    def logits(self, seq, x):
        return self.weight[seq.tokens[-1]]


class Runner:
    def __init__(self, config, model, pool, max_batch_tokens, max_seqs):
        need(max_batch_tokens > 0 and max_seqs > 0, "INVALID",
             f"max_batch_tokens is {max_batch_tokens} and max_seqs {max_seqs}, "
             "both must be at least 1")
        self.config, self.model, self.pool = config, model, pool
        self.max_batch_tokens, self.max_seqs = max_batch_tokens, max_seqs

    # ------------------------------------------------------------ forward#checks
    def check_tokens(self, tokens, start, called):
        need(len(tokens) > 0, "INVALID", f"{called} has no token")
        vocab_size, most = self.config["vocab_size"], self.config["max_positions"]
        for place, token in enumerate(tokens):
            need(token < vocab_size, "INVALID",
                 f"{called} has token {token} at {place}, the vocabulary has {vocab_size} ids")
        need(start + len(tokens) <= most, "INVALID",
             f"{called} ends at position {start + len(tokens)}, the model has {most}")

    def check_table(self, seq, called):
        reach = len(seq.blocks) * self.pool.block_tokens
        need(seq.end <= reach, "INVALID",
             f"the block table of {called} reaches {reach} positions, {seq.end} are needed")
        seen = set()
        for block in seq.blocks:
            need(block < self.pool.n_blocks, "INVALID",
                 f"the block table of {called} has block {block}, the pool has "
                 f"{self.pool.n_blocks}")
            need(block not in seen, "INVALID",
                 f"the block table of {called} has block {block} twice")
            seen.add(block)

    def written(self, seq):
        """The blocks that the step writes."""
        b = self.pool.block_tokens
        return seq.blocks[seq.start // b:(seq.end - 1) // b + 1]

    def check_blocks(self, seq, others, called):
        pool = self.pool
        for block in seq.blocks:
            need(pool.refs[block] > 0, "STATE", f"{called} lists block {block}, which is not used")
        for place in range(-(-seq.start // pool.block_tokens)):
            block = seq.blocks[place]
            filled = min(pool.block_tokens, seq.start - place * pool.block_tokens)
            need(pool.fill[block] >= filled, "STATE",
                 f"{called} starts at {seq.start}, its block {block} is filled to "
                 f"{pool.fill[block]} and not to {filled}")
        for block in self.written(seq):
            need(pool.refs[block] == 1 and block not in pool.key_of, "STATE",
                 f"{called} writes to block {block}, which has a key or other holders")
            need(block not in others, "STATE",
                 f"{called} writes to block {block}, which another sequence lists")

    def check(self, seqs, rows_cap):
        need(seqs, "INVALID", "the batch has no sequence")
        for i, seq in enumerate(seqs):
            self.check_tokens(seq.tokens, seq.start, f"sequence {i}")
            self.check_table(seq, f"sequence {i}")
        total = sum(len(seq.tokens) for seq in seqs)
        need(total <= self.max_batch_tokens, "CAPACITY",
             f"the batch has {total} tokens up to sequence {len(seqs) - 1}, "
             f"{self.max_batch_tokens} are allowed")
        need(len(seqs) <= min(self.max_seqs, rows_cap), "CAPACITY",
             f"the batch goes up to sequence {len(seqs) - 1}, {self.max_seqs} sequences are "
             f"allowed and {rows_cap} rows have room")
        for i, seq in enumerate(seqs):
            self.check_blocks(seq, self.others(seqs, i), f"sequence {i}")

    @staticmethod
    def others(seqs, i):
        """Blocks that the rest of the batch lists."""
        return {block for j, seq in enumerate(seqs) if j != i for block in seq.blocks}

    # ------------------------------------------------------------ steps
    def raise_fill(self, seq, others):
        """forward#fill; where nothing is filled behind the last position, no rewind shows."""
        pool, b = self.pool, self.pool.block_tokens
        first, last = seq.start // b, (seq.end - 1) // b
        pool.fill[seq.blocks[first:last]] = b
        pool.fill[seq.blocks[last]] = (seq.end - 1) % b + 1
        for block in seq.blocks[last + 1:]:
            if pool.refs[block] == 1 and block not in pool.key_of and block not in others:
                pool.fill[block] = 0

    def forward(self, seqs, rows_cap):
        """One row of logits for each sequence."""
        self.check(seqs, rows_cap)
        rows = [self.model.logits(seq, self.model.step(self.pool, seq)) for seq in seqs]
        for i, seq in enumerate(seqs):
            self.raise_fill(seq, self.others(seqs, i))
        return np.stack(rows)

    def run_once(self, tokens):
        """forward#run_once: the last logits, and the hidden rows (None for the bigram)."""
        pool = self.pool
        self.check_tokens(tokens, 0, "the prompt")
        n = -(-len(tokens) // pool.block_tokens)
        need(n <= pool.n_free, "CAPACITY",
             f"the prompt needs {n} free blocks, there are {pool.n_free}", needed=n)
        blocks = pool.alloc(n)
        try:
            rows = []
            for at in range(0, len(tokens), self.max_batch_tokens):
                seq = Sequence(tokens[at:at + self.max_batch_tokens], at, blocks)
                x = self.model.step(pool, seq)
                rows.append(self.model.hidden(x))
            return self.model.logits(seq, x), None if rows[0] is None else np.concatenate(rows)
        finally:
            for block in blocks:
                pool.release(block)
