"""spec/kv-block.md: the pool of KV blocks, and the digest of spec/testee.md over it."""
from collections import OrderedDict

import numpy as np

from .refusal import Refusal, need

MOST_REFS = 65535
NO_KEY = bytes(16)
FNV_START, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


class Pool:
    """`kv` is everything: [block, layer, side, head, slot, head_dim] as bits of f16."""

    def __init__(self, n_blocks, block_tokens, n_layers, n_kv_heads, head_dim, dtype=1, format=1,
                 prefix_cache=True, model_tag=0):
        shape = {"n_blocks": n_blocks, "block_tokens": block_tokens, "n_layers": n_layers,
                 "n_kv_heads": n_kv_heads, "head_dim": head_dim}
        size = 4
        for name, value in shape.items():
            need(value > 0, "INVALID", f"{name} is 0, at least 1 is needed")
            size *= value
        need(dtype == 1, "INVALID", f"dtype is {dtype}, only 1 (f16) is known")
        need(format == 1, "INVALID", f"format is {format}, only 1 is known")
        need(size < 2**63, "NOMEM", f"{size} bytes for the slabs are too many: {shape}")
        self.n_blocks, self.block_tokens, self.n_layers = n_blocks, block_tokens, n_layers
        self.n_kv_heads, self.head_dim = n_kv_heads, head_dim
        self.slab_len = n_kv_heads * block_tokens * head_dim
        self.prefix_cache, self.model_tag = prefix_cache, model_tag
        try:
            self.kv = np.zeros((n_blocks, n_layers, 2, n_kv_heads, block_tokens, head_dim),
                               np.uint16)
            self.refs = np.zeros(n_blocks, np.uint32)
            self.fill = np.zeros(n_blocks, np.uint32)
        except (MemoryError, ValueError) as e:
            raise Refusal("NOMEM", f"no memory for {size} bytes of slabs: {e}") from None
        self.key_of = {}              # block: its key
        self.index = {}               # key: its block
        self.cached = OrderedDict()   # blocks, the oldest release first
        self.returned = []            # free blocks that were used before; all from `fresh` on
        self.fresh = 0                # were not, so that a large pool costs nothing to make

    @property
    def n_free(self):
        return len(self.returned) + self.n_blocks - self.fresh

    def stats(self):
        free, cached = self.n_free, len(self.cached)
        return {"free": free, "cached": cached, "used": self.n_blocks - free - cached}

    def check_id(self, block):
        need(block < self.n_blocks, "INVALID",
             f"block {block} is not in the pool of {self.n_blocks}")

    def check_used(self, block):
        self.check_id(block)
        need(self.refs[block] > 0, "STATE", f"block {block} is not used")

    def alloc(self, n):
        room = self.n_free + len(self.cached)
        need(n <= room, "CAPACITY", f"{n} blocks are asked for, {room} are free or cached",
             needed=n)
        blocks = [self.take() for _ in range(n)]
        self.refs[blocks] = 1
        self.fill[blocks] = 0
        return blocks

    def take(self):
        """One block: a free one, else the one whose last release is the oldest."""
        if self.returned:
            return self.returned.pop()
        if self.fresh < self.n_blocks:
            self.fresh += 1
            return self.fresh - 1
        block, _ = self.cached.popitem(last=False)
        del self.index[self.key_of.pop(block)]
        return block

    def retain(self, block, times=1):
        """Returns how many of so many single calls succeeded, and what the next one says."""
        self.check_id(block)
        refs = int(self.refs[block])
        if refs == 0:
            return 0, Refusal("STATE", f"block {block} is not used")
        done = min(times, MOST_REFS - refs)
        self.refs[block] += done
        return done, Refusal("STATE", f"block {block} has {MOST_REFS} references, the most allowed")

    def release(self, block, times=1):
        self.check_id(block)
        done = min(times, int(self.refs[block]))
        self.refs[block] -= done
        if done and self.refs[block] == 0:
            if block in self.key_of:
                self.cached[block] = None
            else:
                self.fill[block] = 0
                self.returned.append(block)
        return done, Refusal("STATE", f"block {block} is not used")

    def set_fill(self, block, fill):
        self.check_used(block)
        need(fill <= self.block_tokens, "INVALID",
             f"fill is {fill}, block {block} has {self.block_tokens} positions")
        need(block not in self.key_of or fill == self.block_tokens, "STATE",
             f"block {block} has a key and stays full, the fill {fill} is less")
        self.fill[block] = fill

    def register(self, block, key):
        self.check_used(block)
        need(self.prefix_cache, "STATE", "prefix caching is off")
        need(self.fill[block] == self.block_tokens, "STATE",
             f"block {block} is filled to {self.fill[block]} of {self.block_tokens}")
        own = self.key_of.get(block)
        need(own in (None, key), "STATE", f"block {block} has another key already")
        if key not in self.index:
            self.index[key] = block
            self.key_of[block] = key

    def lookup(self, key):
        need(key in self.index, "NOT_FOUND", f"no block has the key {key.hex()}")
        block = self.index[key]
        need(self.refs[block] < MOST_REFS, "STATE",
             f"block {block} has {MOST_REFS} references, the most allowed")
        self.cached.pop(block, None)
        self.refs[block] += 1
        return block

    def slab(self, block, layer, side):
        """The K or V slab of one layer, to read and to write."""
        self.check_used(block)
        need(layer < self.n_layers, "INVALID",
             f"layer is {layer}, the pool has {self.n_layers}")
        need(side in ("k", "v"), "INVALID", f"side is {side!r}, neither K nor V")
        return self.kv[block, layer, 0 if side == "k" else 1].reshape(-1)

    def info(self, block):
        self.check_id(block)
        return {"refs": int(self.refs[block]), "fill": int(self.fill[block]),
                "registered": block in self.key_of, "key": self.key_of.get(block, NO_KEY).hex()}

    def digest(self):
        head = np.zeros(self.n_blocks, np.dtype([("refs", "<u4"), ("fill", "<u4"),
                                                 ("registered", "u1"), ("key", "V16")]))
        head["refs"], head["fill"] = self.refs, self.fill
        for block, key in self.key_of.items():
            head[block] = (self.refs[block], self.fill[block], 1, key)
        hash = FNV_START
        # The slabs of used blocks stand between the heads, so the heads go in pieces.
        begin = 0
        for block in np.flatnonzero(self.refs).tolist():
            hash = fnv1a(hash, head[begin:block + 1].tobytes())
            hash = fnv1a(hash, self.kv[block].astype("<u2").tobytes())
            begin = block + 1
        return fnv1a(hash, head[begin:].tobytes())


def fnv1a(hash, data):
    """FNV-1a 64 over bytes, without a loop over them.

    One step is (h ^ b) * P. The XOR reaches the lowest byte of h only, and that byte's future
    depends on nothing above it; so first all lowest bytes are found, bit by bit (bit k of x * P is
    bit k of x flipped by the lower bits, since P is odd, which makes a prefix XOR of it). Then
    h ^ b is h plus a known difference, and the sum of all differences times powers of P remains.
    """
    for at in range(0, len(data), 1 << 16):
        bytes_ = np.frombuffer(data, np.uint8, min(1 << 16, len(data) - at), at)
        mixed = np.zeros(len(bytes_), np.uint8)
        for k in range(8):
            carried = ((mixed * np.uint8(FNV_PRIME & 255)) >> k) & 1
            toggled = ((bytes_ >> k) & 1) ^ carried
            toggled[1:], toggled[0] = toggled[:-1].copy(), hash >> k & 1
            mixed |= (np.bitwise_xor.accumulate(toggled) ^ ((bytes_ >> k) & 1)) << k
        lowest = mixed ^ bytes_
        powers = np.full(len(bytes_), FNV_PRIME, np.uint64).cumprod(dtype=np.uint64)
        differences = mixed.astype(np.int64) - lowest
        total = (differences.astype(np.uint64) * powers[::-1]).sum(dtype=np.uint64)
        hash = (hash * int(powers[-1]) + int(total)) & (2**64 - 1)
    return hash
