"""kv.vectors.json: transfer envelopes of conformance/spec/formats/kv-block.md.

Envelopes are packed with struct and zlib.crc32.  Slabs hold values past the fill on purpose, which
must come out as zeros.  The refused envelopes are read by check(), a second implementation of the
page's list of import rules, which must name the same status and field as the table of faults; a
disagreement stops the generator.
"""

import os
import random
import struct
import zlib

import vectors as v

HEADER = struct.Struct("<4s9IQQII")
DIMS = ("block_tokens", "n_layers", "n_kv_heads", "head_dim")


class Pool:
    def __init__(self, n_blocks, block_tokens, n_layers, n_kv_heads, head_dim, tag=0, cache=True):
        self.n_blocks, self.block_tokens, self.n_layers = n_blocks, block_tokens, n_layers
        self.n_kv_heads, self.head_dim, self.tag, self.cache = n_kv_heads, head_dim, tag, cache

    def slab_len(self):
        return self.n_kv_heads * self.block_tokens * self.head_dim

    def record_len(self):
        return 24 + self.n_layers * 2 * self.slab_len() * 2

    def json(self):
        names = ("n_blocks", *DIMS)
        return {**{n: getattr(self, n) for n in names}, "prefix_cache": self.cache}


class Block:
    def __init__(self, fill, key, layers):
        self.fill, self.key, self.layers = fill, key, layers   # layers: [(k, v)] of f16 bits


def visible(pool, slab, fill):
    """The slab with zeros from position fill on, in every head."""
    out = []
    for index, bits in enumerate(slab):
        position = index // pool.head_dim % pool.block_tokens
        out.append(bits if position < fill else 0)
    return out


def record(pool, block):
    data = struct.pack("<II16s", block.fill, block.key is not None, block.key or bytes(16))
    for k, w in block.layers:
        for slab in (k, w):
            data += struct.pack(f"<{pool.slab_len()}H", *visible(pool, slab, block.fill))
    return data


def header(pool, count, payload, **changed):
    """The header with named fields replaced; checksums are right unless they are named too."""
    f = {"magic": b"TLKV", "version": 1, "header_bytes": 64, "dtype": 1, "n_blocks": count,
         **{d: getattr(pool, d) for d in DIMS}, "flags": 0, "payload_bytes": len(payload),
         "model_tag": pool.tag, "payload_crc": zlib.crc32(payload), **changed}
    first = HEADER.pack(f["magic"], f["version"], f["header_bytes"], f["dtype"], f["n_blocks"],
                        *(f[d] for d in DIMS), f["flags"], f["payload_bytes"], f["model_tag"],
                        f["payload_crc"], 0)[:60]
    crc = f.get("header_crc", zlib.crc32(first))
    return first + struct.pack("<I", crc)


def envelope(pool, blocks, **changed):
    payload = b"".join(record(pool, b) for b in blocks)
    return header(pool, len(blocks), payload, **changed) + payload


# ----------------------------------------------------------- the oracle: import, rule by rule

def check(pool, data, ids_cap):
    """(status, field offset or None) of the first rule that the envelope breaks, or None."""
    if len(data) < 64:
        return "FORMAT", None
    fields = HEADER.unpack(data[:64])
    (magic, version, header_bytes, dtype, n_blocks, block_tokens, n_layers, n_kv_heads, head_dim,
     flags, payload_bytes, tag, payload_crc, header_crc) = fields
    if magic != b"TLKV":
        return "FORMAT", 0
    if header_crc != zlib.crc32(data[:60]):
        return "FORMAT", 60
    if version != 1:
        return "UNSUPPORTED", 4
    if header_bytes != 64:
        return "FORMAT", 8
    if flags != 0:
        return "FORMAT", 36
    if dtype != 1:
        return "UNSUPPORTED", 12
    if (block_tokens, n_layers, n_kv_heads, head_dim) != tuple(getattr(pool, d) for d in DIMS):
        return "UNSUPPORTED", None
    if tag and pool.tag and tag != pool.tag:
        return "UNSUPPORTED", 48
    if payload_bytes != n_blocks * pool.record_len():
        return "FORMAT", 40
    if len(data) != 64 + payload_bytes:
        return "FORMAT", None
    if zlib.crc32(data[64:]) != payload_crc:
        return "FORMAT", 56
    for number in range(n_blocks):
        fault = check_record(pool, data, 64 + number * pool.record_len())
        if fault is not None:
            return "FORMAT", fault
    if n_blocks > pool.n_blocks or n_blocks > ids_cap:
        return "CAPACITY", None
    return None


def check_record(pool, data, at):
    """The offset of the field of this record that breaks a rule, or None."""
    fill, has_key, key = struct.unpack_from("<II16s", data, at)
    if fill > pool.block_tokens:
        return at
    if has_key > 1:
        return at + 4
    if has_key and fill != pool.block_tokens or not has_key and any(key):
        return at + 8 if not has_key else at + 4
    start = at + 24
    for index in range(2 * pool.n_layers * pool.slab_len()):
        position = index // pool.head_dim % pool.block_tokens
        if position >= fill and data[start + 2 * index:start + 2 * index + 2] != b"\0\0":
            return start + 2 * index
    return None


# ------------------------------------------------------------------------------ the cases

def drawn_f16(rng):
    """Mostly ordinary values; now and then any bits, since the pool never looks at them."""
    if rng.random() < 0.1:
        return rng.choice((0x7E00, 0x7C00, 0xFC00, 0x8000, 0x0001, 0x03FF, 0x7BFF))
    return rng.getrandbits(16)


def drawn_block(rng, pool, fill, key):
    layers = [tuple([drawn_f16(rng) for _ in range(pool.slab_len())] for _ in range(2))
              for _ in range(pool.n_layers)]
    return Block(fill, key, layers)


def exported(rng):
    def key():
        return bytes(rng.getrandbits(8) for _ in range(16))

    out = []

    def add(name, comment, flags, pool, shapes):
        blocks = [drawn_block(rng, pool, fill, key() if keyed else None) for fill, keyed in shapes]
        out.append((name, comment, flags, pool, blocks))

    add("one-full-block", "one full block without a key", ["layout"], Pool(4, 4, 1, 1, 2),
        [(4, False)])
    add("no-blocks", "zero blocks are a legal envelope", ["empty"], Pool(4, 4, 1, 1, 2), [])
    add("partial-fills", "every fill from 0 to 5: what lies past it is another request's",
        ["stale-slots"], Pool(8, 5, 2, 2, 4), [(f, False) for f in range(6)])
    add("keys", "full blocks with and without a key", ["keys"], Pool(8, 4, 2, 1, 2),
        [(4, True), (4, False), (4, True), (2, False)])
    add("heads", "positions past the fill stand in every head's part of the slab",
        ["stale-slots", "layout"], Pool(4, 3, 1, 4, 2), [(1, False), (2, False), (3, True)])
    add("layers", "K before V, layer after layer", ["layout"], Pool(4, 2, 5, 2, 2),
        [(2, True), (1, False)])
    add("model-tag", "the fingerprint of the model rides along", ["model-tag"],
        Pool(4, 4, 1, 1, 2, tag=0x0123456789ABCDEF), [(4, True), (3, False)])
    add("model-tag-top", "a tag with the top bit set", ["model-tag"],
        Pool(4, 2, 1, 1, 2, tag=0xFEDCBA9876543210), [(2, False)])
    add("one-position", "blocks of one position", ["layout"], Pool(6, 1, 2, 3, 2),
        [(1, True), (1, False), (0, False)])
    add("odd-shape", "sizes that share no factor", ["layout"], Pool(5, 7, 3, 5, 6),
        [(7, True), (6, False), (1, False)])
    add("cache-off", "a pool without prefix cache has no keys", ["keys"],
        Pool(4, 4, 1, 2, 2, cache=False), [(4, False), (3, False)])
    add("whole-pool", "every block of the pool", ["layout"], Pool(12, 2, 1, 1, 2),
        [(i % 3, False) for i in range(12)])
    add("model-like", "the block of a small model", ["layout", "keys"], Pool(3, 16, 2, 2, 16),
        [(16, True), (9, False)])
    return out


def adopted(rng):
    """Imports whose result is not what was exported."""
    pool = Pool(4, 2, 1, 1, 2, tag=77)
    key = bytes(range(16))
    full = [drawn_block(rng, pool, 2, key), drawn_block(rng, pool, 2, key),
            drawn_block(rng, pool, 2, bytes(16))]
    plain = [drawn_block(rng, pool, 2, key), drawn_block(rng, pool, 1, None)]

    def entry(name, comment, flags, into, data, keys):
        blocks = full if len(keys) == 3 else plain
        assert check(into, data, len(keys)) is None
        return {"id": name, "comment": comment, "flags": flags, "config": into.json(),
                "model_tag": v.u64hex(into.tag),
                "blocks": [{"fill": b.fill, "key": None if k is None else k.hex()}
                           for b, k in zip(blocks, keys)],
                "envelope": data.hex()}

    off = Pool(4, 2, 1, 1, 2, tag=77, cache=False)
    unknown = Pool(4, 2, 1, 1, 2, tag=0)
    return [
        entry("key-twice", "two records with one key: the second comes in without; a key of zeros "
              "is a key", ["keys"], pool, envelope(pool, full), [key, None, bytes(16)]),
        entry("cache-off-drops-keys", "the importing pool has no prefix cache", ["keys"], off,
              envelope(pool, plain), [None, None]),
        entry("tag-unknown-here", "the importing pool's tag is 0: any tag will do", ["model-tag"],
              unknown, envelope(pool, plain), [key, None]),
        entry("tag-unknown-there", "the envelope's tag is 0", ["model-tag"], pool,
              envelope(unknown, plain), [key, None]),
        entry("exact-fit", "as many blocks as the pool has", ["capacity"],
              Pool(2, 2, 1, 1, 2, tag=77), envelope(pool, plain), [key, None]),
    ]


def keys_after(pool, cached, blocks):
    """The key with which each block comes in, beside cached blocks of these keys, the oldest first."""
    order, index = list(cached), set(cached)
    for _ in range(max(0, len(blocks) - (pool.n_blocks - len(cached)))):
        index.remove(order.pop(0))
    out = []
    for block in blocks:
        taken = block.key is None or block.key in index or not pool.cache
        out.append(None if taken else block.key)
        index.add(block.key)
    return out


def beside(rng):
    """Imports into a pool that holds cached blocks: which keys the index has when all are placed."""
    def entry(name, comment, n_blocks, cached, sent, want):
        pool = Pool(n_blocks, 2, 1, 1, 2)
        blocks = [drawn_block(rng, pool, 2, k) for k in sent]
        data = envelope(pool, blocks)
        assert check(pool, data, len(blocks)) is None, name
        assert keys_after(pool, cached, blocks) == want, name
        return {"id": name, "comment": comment, "flags": ["keys-by-then"], "config": pool.json(),
                "model_tag": v.u64hex(pool.tag), "cached": [k.hex() for k in cached],
                "blocks": [{"fill": 2, "key": None if k is None else k.hex()} for k in want],
                "envelope": data.hex()}

    a, b, c = (bytes(rng.getrandbits(8) for _ in range(16)) for _ in range(3))
    out = [
        entry("evicted-by-a-later-block", "one block is free, the other cached under the first "
              "record's key: it goes when the second record gets its block", 2, [a], [a, b], [a, b]),
        entry("evicted-crosswise", "each record has the key of the block that the other one gets",
              2, [a, b], [b, a], [b, a]),
        entry("stays-cached", "two blocks are free: the cached one stays, and so does its key",
              3, [a], [a, b], [None, b]),
        entry("oldest-goes", "the oldest of three goes: its key is free, the others' are taken",
              4, [c, a, b], [b, c], [None, c]),
    ]
    for place in range(16):
        near = bytes(x ^ (1 << rng.randrange(8) if i == place else 0) for i, x in enumerate(a))
        out.append(entry(f"near-key-{place}", f"a key that differs from a cached one in one bit of "
                         f"byte {place} is another key", 2, [a], [near], [near]))
    return out


def patched(data, at, replacement):
    """Bytes replaced in the payload and both checksums made right again."""
    data = data[:at] + replacement + data[at + len(replacement):]
    first = data[:56] + struct.pack("<I", zlib.crc32(data[64:]))
    return first + struct.pack("<I", zlib.crc32(first)) + data[64:]


def refused(rng):
    pool = Pool(4, 4, 2, 2, 2, tag=0x51)
    key = bytes(range(1, 17))
    blocks = [drawn_block(rng, pool, 4, key), drawn_block(rng, pool, 2, None)]
    good = envelope(pool, blocks)
    second = 64 + pool.record_len()
    last_position = second + 24 + 2 * (pool.slab_len() - 1)
    hidden = second + 24 + 2 * (2 * pool.head_dim)
    out = []

    def add(name, comment, flag, status, data, offset=None, into=pool, **rest):
        want = check(into, data, rest.get("ids_cap", 2))
        assert want is not None and want[0] == status, (name, want)
        assert offset is None or want[1] == offset, (name, want, offset)
        case = {"id": name, "comment": comment, "flags": [flag], "config": into.json(),
                "model_tag": v.u64hex(into.tag), "envelope": data.hex(), **rest,
                "verdict": "refuse", "status": [status]}
        if offset is not None:
            case["offset"] = offset
        out.append({**case, "twin": "import-twin"})

    def field(**changed):
        return envelope(pool, blocks, **changed)

    add("empty", "no bytes", "length", "FORMAT", b"")
    add("header-short", "63 bytes", "length", "FORMAT", good[:63])
    add("magic", "another magic", "header", "FORMAT", field(magic=b"TLKW"), 0)
    add("magic-lower", "the magic in lower case", "header", "FORMAT", field(magic=b"tlkv"), 0)
    add("header-crc", "a wrong header checksum", "checksum", "FORMAT",
        field(header_crc=zlib.crc32(good[:60]) ^ 1), 60)
    add("version-0", "version 0", "header", "UNSUPPORTED", field(version=0))
    add("version-2", "version 2", "header", "UNSUPPORTED", field(version=2))
    add("header-bytes", "a header of 68 bytes", "header", "FORMAT", field(header_bytes=68), 8)
    add("flags", "a flag", "header", "FORMAT", field(flags=1), 36)
    add("flags-top", "the top flag", "header", "FORMAT", field(flags=1 << 31), 36)
    add("dtype-0", "dtype 0", "header", "UNSUPPORTED", field(dtype=0))
    add("dtype-2", "dtype 2", "header", "UNSUPPORTED", field(dtype=2))
    for dim in DIMS:
        for change in (-1, 1):
            size = getattr(pool, dim) + change
            add(f"{dim}-{'more' if change > 0 else 'less'}", f"{dim} {size}", "dimensions",
                "UNSUPPORTED", field(**{dim: size}))
    add("dims-swapped", "layers x heads is the same, each is not", "dimensions", "UNSUPPORTED",
        envelope(Pool(4, 4, 1, 4, 2, tag=0x51), []))
    add("tag-differs", "another model's values", "model-tag", "UNSUPPORTED",
        field(model_tag=0x52))
    add("tag-differs-top", "tags that differ in the upper half alone", "model-tag", "UNSUPPORTED",
        field(model_tag=0x51 | 1 << 63))
    add("payload-bytes-less", "payload_bytes one short", "length", "FORMAT",
        field(payload_bytes=len(good) - 65), 40)
    add("payload-bytes-wrap", "payload_bytes so large that 64 more wrap around", "length",
        "FORMAT", field(payload_bytes=(1 << 64) - 64), 40)
    add("n-blocks-more", "one block more than there are", "length", "FORMAT", field(n_blocks=3))
    add("n-blocks-max", "4,294,967,295 blocks", "length", "FORMAT", field(n_blocks=0xFFFFFFFF))
    add("cut", "the last byte is missing", "length", "FORMAT", good[:-1])
    add("appended", "one byte appended", "length", "FORMAT", good + b"\0")
    add("payload-crc", "a flipped bit in the last value", "checksum", "FORMAT",
        good[:-1] + bytes([good[-1] ^ 1]))
    add("fill-above", "fill 5 of 4", "record", "FORMAT", patched(good, second, b"\5\0\0\0"), second)
    add("fill-top", "fill 2^31", "record", "FORMAT", patched(good, second, b"\0\0\0\x80"), second)
    add("has-key-2", "has_key 2", "record", "FORMAT", patched(good, 68, b"\2\0\0\0"), 68)
    add("key-on-partial", "a key on a block that is not full", "record", "FORMAT",
        patched(good, second + 4, b"\1\0\0\0" + key))
    add("key-without-flag", "key bytes where has_key is 0", "record", "FORMAT",
        patched(good, second + 8 + 15, b"\1"))
    add("stale-first", "a value at the first position past the fill", "stale-slots", "FORMAT",
        patched(good, hidden, b"\1\0"), hidden)
    add("stale-last-head", "a value at the last position of the last head", "stale-slots",
        "FORMAT", patched(good, last_position, b"\1\0"), last_position)
    add("stale-last", "a value in the last layer's V slab", "stale-slots", "FORMAT",
        patched(good, len(good) - 2, b"\1\0"), len(good) - 2)
    add("stale-minus-zero", "-0 is not zero bytes", "stale-slots", "FORMAT",
        patched(good, hidden, b"\0\x80"))
    add("second-record-bad", "the first record is good, the second is not: nothing comes in",
        "partial-import", "FORMAT", patched(good, second + 4, b"\7\0\0\0"), second + 4)
    add("pool-too-small", "two blocks for a pool of one", "capacity", "CAPACITY", good,
        into=Pool(1, 4, 2, 2, 2, tag=0x51))
    add("ids-cap", "room for one id", "capacity", "CAPACITY", good, ids_cap=1)
    add("ids-cap-0", "room for no id", "capacity", "CAPACITY", good, ids_cap=0)
    twin = ("import-twin", "the twin of the refused envelopes", ["layout", "keys"], pool, blocks)
    return twin, out


NOTES = {
    "layout": v.note("V before K, positions before heads, or big-endian numbers.",
                     "Another engine reads another cache."),
    "empty": v.note("An envelope of zero blocks is refused.", "A legal hand-over fails."),
    "stale-slots": v.note("Slots past the fill are exported as they lie, or accepted.",
                          "Another request's values leave the process."),
    "keys": v.note("A key is lost, doubled or kept where it cannot be.",
                   "The prefix index serves the wrong block, or none."),
    "keys-by-then": v.note("Keys are registered while blocks are still taken, or compared in part.",
                           "A prefix is lost from the index, or found under another's key."),
    "model-tag": v.note("The model's fingerprint is not written or not compared.",
                        "Values of another model are attended to."),
    "capacity": v.note("Room is checked after the first block is in.",
                       "A refused import leaves blocks behind."),
    "partial-import": v.note("Records are taken in one by one while they are checked.",
                             "A refused import leaves blocks behind."),
    "length": v.note("Lengths are added before they are compared, or not compared exactly.",
                     "Reads past the buffer; trailing bytes are let in."),
    "header": v.note("A field of the header is not looked at.",
                     "A future format is read as this one."),
    "checksum": v.note("A checksum is not compared.", "A flipped bit is attended to."),
    "dimensions": v.note("Only the product of the dimensions is compared.",
                         "Heads and positions are mixed up."),
    "record": v.note("fill and has_key are believed.", "A fill past the block reads past it."),
}


def export_json(name, comment, flags, pool, blocks):
    data = envelope(pool, blocks)
    assert check(pool, data, len(blocks)) is None, name
    return {"id": name, "comment": comment, "flags": flags, "config": pool.json(),
            "model_tag": v.u64hex(pool.tag),
            "blocks": [{"fill": b.fill, "key": None if b.key is None else b.key.hex(),
                        "layers": [{"k": v.f16list(k), "v": v.f16list(w)} for k, w in b.layers]}
                       for b in blocks],
            "envelope": data.hex()}


def main(argv=None):
    args = v.arguments(__doc__.split("\n")[0], argv)
    rng = random.Random(f"kv-{args.seed}")
    cases = exported(rng)
    for name, _, flags, pool, blocks in cases:
        if "stale-slots" in flags:
            stale = [x for b in blocks for layer in b.layers for slab in layer
                     for x, y in zip(slab, visible(pool, slab, b.fill)) if x != y]
            assert len(stale) > 8, name
    twin, bad = refused(rng)
    later = beside(random.Random(f"kv-beside-{args.seed}"))
    v.write_vectors(os.path.join(args.out, "kv.vectors.json"), "kv",
                    v.generator_info("gen/kv.py", v.command_of("kv.py", args)),
                    {"name": "struct and zlib.crc32 in Python", "version": "envelope 1",
                     "dtype": "f16", "device": "cpu"},
                    v.bits_tolerance("bytes"), NOTES,
                    [{"name": "export", "cases": [export_json(*c) for c in cases + [twin]]},
                     {"name": "adopted", "cases": adopted(rng) + later},
                     {"name": "refused", "cases": bad}])


if __name__ == "__main__":
    main()
