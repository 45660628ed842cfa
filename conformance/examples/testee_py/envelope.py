"""spec/kv-block.md: the transfer envelope, version 1."""
import struct
import zlib

import numpy as np

from .pool import NO_KEY
from .refusal import Refusal, need

HEADER = struct.Struct("<4s9IQQ2I")
MAGIC = b"TLKV"


def layout(pool):
    """One record: kv#record."""
    slabs = (pool.n_layers, 2, pool.n_kv_heads, pool.block_tokens, pool.head_dim)
    return np.dtype([("fill", "<u4"), ("has_key", "<u4"), ("key", "u1", 16),
                     ("kv", "<u2", slabs)])


def export(pool, blocks, cap=None):
    for block in blocks:
        pool.check_id(block)
    twice = {block for block in blocks if blocks.count(block) > 1}
    need(not twice, "INVALID", f"block {min(twice, default=0)} is listed twice")
    for block in blocks:
        pool.check_used(block)
    records = np.zeros(len(blocks), layout(pool))
    size = HEADER.size + records.nbytes
    need(cap is None or cap >= size, "CAPACITY",
         f"the envelope has {size} bytes, the buffer {cap}", needed=size)
    for record, block in zip(records, blocks):
        fill = int(pool.fill[block])
        record["fill"], record["has_key"] = fill, block in pool.key_of
        record["key"] = list(pool.key_of.get(block, NO_KEY))
        record["kv"][:, :, :, :fill] = pool.kv[block][:, :, :, :fill]
    payload = records.tobytes()
    fields = (MAGIC, 1, HEADER.size, 1, len(blocks), pool.block_tokens, pool.n_layers,
              pool.n_kv_heads, pool.head_dim, 0, len(payload), pool.model_tag, zlib.crc32(payload))
    return with_crc(fields) + payload


def with_crc(fields):
    head = HEADER.pack(*fields, 0)[:60]
    return head + struct.pack("<I", zlib.crc32(head))


def check_header(pool, data):
    """Checks 1 to 10; returns n_blocks."""
    need(len(data) >= HEADER.size, "FORMAT",
         f"the envelope has {len(data)} bytes, its header alone has {HEADER.size}", len(data))
    (magic, version, header_bytes, dtype, n_blocks, block_tokens, n_layers, n_kv_heads, head_dim,
     flags, payload_bytes, model_tag, payload_crc, header_crc) = HEADER.unpack_from(data)
    need(magic == MAGIC, "FORMAT", f"the magic is {magic.hex()}, no TLKV", 0)
    found = zlib.crc32(data[:60])
    need(header_crc == found, "FORMAT",
         f"the header's CRC is {header_crc:08x}, its bytes have {found:08x}", 60)
    need(version == 1, "UNSUPPORTED", f"the version is {version}, only 1 is known", 4)
    need(header_bytes == HEADER.size, "FORMAT", f"header_bytes is {header_bytes}, no 64", 8)
    need(flags == 0, "FORMAT", f"flags are {flags}, only 0 is known", 36)
    for name, offset, value, own in (("dtype", 12, dtype, 1),
                                     ("block_tokens", 20, block_tokens, pool.block_tokens),
                                     ("n_layers", 24, n_layers, pool.n_layers),
                                     ("n_kv_heads", 28, n_kv_heads, pool.n_kv_heads),
                                     ("head_dim", 32, head_dim, pool.head_dim)):
        need(value == own, "UNSUPPORTED", f"{name} is {value}, the pool has {own}", offset)
    need(model_tag == pool.model_tag or 0 in (model_tag, pool.model_tag), "UNSUPPORTED",
         f"model_tag is {model_tag:016x}, the pool has {pool.model_tag:016x}", 48)
    size = n_blocks * layout(pool).itemsize
    need(size < 2**64 and payload_bytes == size and len(data) == HEADER.size + size, "FORMAT",
         f"payload_bytes is {payload_bytes} of {len(data) - HEADER.size} that are there, "
         f"{n_blocks} records have {size}", 40)
    found = zlib.crc32(data[HEADER.size:])
    need(payload_crc == found, "FORMAT",
         f"the payload's CRC is {payload_crc:08x}, its bytes have {found:08x}", 56)
    return n_blocks


def check_record(pool, record, number, start):
    """Checks 11 to 14 of one record that begins at byte `start`."""
    fill, has_key, key = int(record["fill"]), int(record["has_key"]), bytes(record["key"])
    called = f"record {number}"
    need(fill <= pool.block_tokens, "FORMAT",
         f"{called} has fill {fill}, a block has {pool.block_tokens} positions", start)
    need(has_key in (0, 1), "FORMAT", f"{called} has has_key {has_key}, no 0 or 1", start + 4)
    need(not has_key or fill == pool.block_tokens, "FORMAT",
         f"{called} has a key and is filled to {fill} of {pool.block_tokens}", start + 4)
    need(has_key or key == NO_KEY, "FORMAT", f"{called} has key bytes and no key", start + 8)
    stale = record["kv"].copy()
    stale[:, :, :, :fill] = 0
    wrong = np.flatnonzero(stale)
    if len(wrong):
        offset = start + 24 + 2 * int(wrong[0])
        raise Refusal("FORMAT", f"{called} has a value past its fill {fill} at byte {offset}",
                      offset)


def import_(pool, data, cap=None):
    n_blocks = check_header(pool, data)
    records = np.frombuffer(data, layout(pool), n_blocks, HEADER.size) if n_blocks else []
    for number, record in enumerate(records):
        check_record(pool, record, number, HEADER.size + number * layout(pool).itemsize)
    room = pool.n_free + len(pool.cached)
    need(n_blocks <= room, "CAPACITY", f"the envelope has {n_blocks} blocks, {room} are free or "
         "cached", needed=n_blocks)
    need(cap is None or n_blocks <= cap, "CAPACITY",
         f"the envelope has {n_blocks} blocks, there is room for {cap} ids", needed=n_blocks)
    blocks = pool.alloc(n_blocks)
    for block, record in zip(blocks, records):
        pool.kv[block] = record["kv"]
        pool.fill[block] = record["fill"]
        if record["has_key"] and pool.prefix_cache:
            pool.register(block, bytes(record["key"]))
    return blocks
