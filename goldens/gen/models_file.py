"""Write and read the golden models' files: safetensors with chosen order, dtype and padding.

The safetensors package sorts tensors by size and name and always pads the header; the goldens
want files in other orders and with unpadded headers too, since both are legal. Values are float32
arrays; F16 and BF16 are rounded to nearest even here, and int4 follows formats/safetensors.md.
"""
import json
import os
import shutil
import struct

import numpy as np

BYTES = {"F32": 4, "F16": 2, "BF16": 2, "U8": 1}


def bf16_bits(values):
    """float32 to bfloat16 bits, to nearest even. The goldens hold finite values only."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_values(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def encode(dtype, values):
    if dtype == "F32":
        return np.ascontiguousarray(values, dtype="<f4").tobytes()
    if dtype == "F16":
        return np.ascontiguousarray(values, dtype=np.float32).astype("<f2").tobytes()
    if dtype == "BF16":
        return bf16_bits(values).astype("<u2").tobytes()
    if dtype == "U8":
        return np.ascontiguousarray(values, dtype=np.uint8).tobytes()
    raise ValueError(f"dtype {dtype} is not one the goldens use")


def decode(dtype, raw):
    if dtype == "F32":
        return np.frombuffer(raw, dtype="<f4").astype(np.float32)
    if dtype == "F16":
        return np.frombuffer(raw, dtype="<f2").astype(np.float32)
    if dtype == "BF16":
        return bf16_values(np.frombuffer(raw, dtype="<u2"))
    if dtype == "U8":
        return np.frombuffer(raw, dtype=np.uint8)
    raise ValueError(f"dtype {dtype} is not one the goldens use")


def write_whole(path, data):
    """Beside the target first, so that nobody ever sees half a file."""
    part = path.with_name(path.name + ".tmp")
    part.write_bytes(data)
    os.replace(part, path)


def write_json(path, value):
    write_whole(path, (json.dumps(value, indent=2) + "\n").encode())


class NewFolder:
    """A folder that is filled beside its place and takes it when it is complete."""

    def __init__(self, place):
        self.place, self.part = place, place.with_name(place.name + ".tmp")

    def __enter__(self):
        shutil.rmtree(self.part, ignore_errors=True)
        self.part.mkdir(parents=True)
        return self.part

    def __exit__(self, kind, *_):
        if kind is None:
            shutil.rmtree(self.place, ignore_errors=True)
            os.replace(self.part, self.place)
        else:
            shutil.rmtree(self.part, ignore_errors=True)


def write_safetensors(path, tensors, metadata=None, pad=True):
    """`tensors` is a list of (name, dtype, array); data and header keep its order.

    pad=False leaves the header at its odd length, so that no tensor is aligned."""
    header, data, at = {}, [], 0
    if metadata:
        header["__metadata__"] = metadata
    for name, dtype, values in tensors:
        raw = encode(dtype, values)
        header[name] = {"dtype": dtype, "shape": list(values.shape),
                        "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        data.append(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    if pad:
        text += b" " * (-len(text) % 8)
    elif len(text) % 2 == 0:
        text += b" "
    write_whole(path, struct.pack("<Q", len(text)) + text + b"".join(data))


def read_safetensors(path):
    """({name: (dtype, array of the stored values as float32, or bytes for U8)}, metadata)."""
    raw = path.read_bytes()
    (size,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8:8 + size])
    metadata = header.pop("__metadata__", {})
    found = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = decode(entry["dtype"], raw[8 + size + begin:8 + size + end])
        found[name] = (entry["dtype"], values.reshape(entry["shape"]))
    return found, metadata


def quantize_int4(weight, group):
    """(q as int8, scales as float16): W ~ q * s, with s the stored f16 scale."""
    n_out, n_in = weight.shape
    parts = weight.astype(np.float32).reshape(n_out, n_in // group, group)
    peak = np.abs(parts).max(axis=2)
    scales = (peak / np.float32(7)).astype(np.float16)
    wide = scales.astype(np.float32)[:, :, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(wide > 0, parts / wide, np.float32(0))
    q = np.clip(np.rint(ratio), -8, 7).astype(np.int8)
    return q.reshape(n_out, n_in), scales


def pack_int4(q):
    """Column 2b in the low nibble of byte b, column 2b + 1 in the high one."""
    low, high = q[:, 0::2].astype(np.uint8) & 15, q[:, 1::2].astype(np.uint8) & 15
    return (low | (high << 4)).astype(np.uint8)


def dequantize_int4(qweight, scales):
    """The float32 matrix that an int4 tensor stands for; q * s is exact in float32."""
    low = (qweight & 15).astype(np.int16)
    high = (qweight >> 4).astype(np.int16)
    q = np.stack([low, high], axis=2).reshape(qweight.shape[0], -1)
    q = np.where(q >= 8, q - 16, q).astype(np.float32)
    wide = scales.astype(np.float32)
    return q * np.repeat(wide, q.shape[1] // wide.shape[1], axis=1)


def load_model(directory):
    """Every weight of a model directory as float32, int4 dequantized: {name: array}."""
    index = directory / "model.safetensors.index.json"
    if index.exists():
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    else:
        names = ["model.safetensors"]
    stored = {}
    for name in names:
        stored.update(read_safetensors(directory / name)[0])
    weights = {}
    for name, (_, values) in stored.items():
        if name.endswith(".qweight"):
            base = name[:-len(".qweight")]
            weights[base + ".weight"] = dequantize_int4(values, stored[base + ".scales"][1])
        elif not name.endswith(".scales"):
            weights[name] = values
    return weights
