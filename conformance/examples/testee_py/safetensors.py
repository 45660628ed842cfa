"""spec/safetensors.md: files, shards, and what is read from them."""
import mmap
import os
import re
import stat

import numpy as np

from .numbers16 import bf16_to_f32, check_group, f16_to_f32
from .refusal import Refusal, need
from .strict_json import Reader, check_bytes, parse_object

LONGEST_HEADER = 100_000_000
MOST_NODES = 16_000_000
MOST_NODES_OF_ENTRY = 250_000
MOST_DIMS = 8_000_000
U64_MAX = 2**64 - 1
SPACES = re.compile(rb" *+")
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8,
        "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16,
        "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64,
        "U64": 64}

FOREIGN = ((b"version https://git-lfs", "a Git LFS pointer, not the file that it stands for"),
           (b"PK\3\4", "a ZIP archive, as PyTorch writes"), (b"PK\5\6", "an empty ZIP archive"),
           (b"GGUF", "a GGUF file"), (b"\0\5\x16\7", "an AppleDouble file of macOS"),
           (b"<!doctype", "an HTML page"), (b"<html", "an HTML page"), (b"<head", "an HTML page"), (b"<body", "an HTML page"))


def foreign_kind(head):
    """What people often have in the place of a checkpoint, or None."""
    if not head:
        return "an empty file"
    if not head.strip(b"\0"):
        return "a file of zero bytes only"
    for magic, kind in FOREIGN:
        text = head.lstrip(b" \t\r\n").lower() if magic[:1] == b"<" else head
        if text.startswith(magic):
            return kind
    return None


def open_regular(path):
    """A descriptor and the size of a regular file; never blocks on anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as e:
        raise Refusal("IO", f"{path} cannot be opened: {e}") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise Refusal("IO", f"{path} is no regular file")
    return descriptor, status.st_size


def read_range(descriptor, count, offset, path):
    """Exactly these bytes."""
    parts = []
    while count:
        try:
            part = os.pread(descriptor, min(count, 1 << 24), offset)
        except OSError as e:
            raise Refusal("IO", f"{path} cannot be read: {e}") from None
        need(part, "IO", f"{path} ends before its size of when it was opened")
        parts.append(part)
        offset += len(part)
        count -= len(part)
    return b"".join(parts)


def read_whole(path, most_bytes):
    """The bytes of a small regular file; its size is judged before it is read."""
    descriptor, size = open_regular(path)
    try:
        need(size <= most_bytes, "FORMAT",
             f"{path} has {size} bytes, at most {most_bytes} are allowed")
        return read_range(descriptor, size, 0, path)
    finally:
        os.close(descriptor)


class Tensor:
    __slots__ = "file", "dtype", "shape", "begin", "end"

    def __init__(self, dtype, shape, begin, end):
        self.dtype = dtype
        self.shape = shape
        self.begin = begin
        self.end = end


def check_integers(values, what):
    need(isinstance(values, list), "FORMAT", f"{what} is no list of integers")
    for v in values:
        need(type(v) is int and v >= 0, "FORMAT",
             f"{what} holds {v!r}, which is no integer from 0 on")
    return tuple(values)


def check_entry(name, entry):
    """Rules 6 to 8."""
    need(isinstance(entry, dict), "FORMAT", f"the entry of tensor {name!r} is no object")
    for key in "dtype", "shape", "data_offsets":
        need(key in entry, "FORMAT", f"tensor {name!r} has no {key}")
    dtype = entry["dtype"]
    need(isinstance(dtype, str), "FORMAT", f"the dtype of tensor {name!r} is no string")
    shape = check_integers(entry["shape"], f"the shape of tensor {name!r}")
    offsets = check_integers(entry["data_offsets"], f"the data_offsets of tensor {name!r}")
    need(len(offsets) == 2, "FORMAT",
         f"tensor {name!r} has {len(offsets)} data_offsets, exactly two are needed")
    need(dtype in BITS, "FORMAT", f"tensor {name!r} has the unknown dtype {dtype!r}")
    size = 1
    for factor in shape + (BITS[dtype],):
        size *= factor
        need(size <= U64_MAX, "FORMAT", f"the size of tensor {name!r} overflows: {list(shape)}")
    begin, end = offsets
    need(size % 8 == 0, "FORMAT", f"tensor {name!r} has {size} bits, which are no whole bytes")
    need(end - begin == size // 8, "FORMAT",
         f"tensor {name!r} needs {size // 8} bytes, its data_offsets are [{begin}, {end}]")
    return Tensor(dtype, shape, begin, end)


def check_tiling(tensors, length):
    """Rule 9. Tensors without bytes may stand at any border of the others, and break the tiling elsewhere."""
    covered, before = 0, None
    for name, t in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        need(t.end <= length, "FORMAT",
             f"tensor {name!r} ends at {t.end}, the data buffer has {length} bytes")
        need(t.begin >= covered, "FORMAT",
             f"tensor {name!r} begins at {t.begin}, inside tensor {before!r} (end {covered})")
        need(t.begin == covered, "FORMAT",
             f"bytes {covered} to {t.begin} before tensor {name!r} belong to no tensor")
        covered, before = t.end, name
    need(covered == length, "FORMAT",
         f"bytes {covered} to {length} at the end of the data buffer belong to no tensor")


class File:
    """One safetensors file: its tensors, its metadata, and its bytes as a map or a copy."""

    def __init__(self, path, weights="map"):
        descriptor, self.size = open_regular(path)
        try:
            try:
                self.read_header(descriptor, path)
            except Refusal as no:
                text = no.text if path in no.text else f"{path}: {no.text}"
                raise Refusal(no.status, text, no.offset, **no.extra) from None
            if weights == "copy":
                self.bytes = read_range(descriptor, self.size, 0, path)
            else:
                self.bytes = mmap.mmap(descriptor, self.size, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)

    def read_header(self, descriptor, path):
        head = read_range(descriptor, min(self.size, 4096), 0, path)
        kind = foreign_kind(head)
        called = f"{path} is {kind}" if kind else path
        need(self.size >= 8, "FORMAT", f"{called}: {self.size} bytes, at least 8 are needed")
        n = int.from_bytes(head[:8], "little")
        need(n <= LONGEST_HEADER and n <= self.size - 8, "FORMAT",
             f"{called}: the header's length is {n}, at most {LONGEST_HEADER} and the "
             f"{self.size - 8} bytes that follow are allowed")
        need(n > 0 and head[8:9] == b"{", "FORMAT", f"{called}: the header begins with byte {head[8] if head[8:] else None} and not with {{",
             8)
        self.data_begin = 8 + n
        header = read_range(descriptor, n, 8, path)
        check_bytes(header, 8)
        self.read_entries(header)
        check_tiling(self.tensors, self.size - self.data_begin)

    def read_entries(self, header):
        """Entries are checked as they come, so that of the JSON only one is held at a time."""
        self.tensors = {}
        self.metadata = {}

        def visit(name, entry):
            if name == "__metadata__":
                need(isinstance(entry, dict), "FORMAT", "__metadata__ is no object")
                for key, value in entry.items():
                    need(isinstance(value, str), "FORMAT",
                         f"__metadata__ has a value that is no string: {key!r}")
                self.metadata = entry
            else:
                self.tensors[name] = check_entry(name, entry)

        reader = Reader(header, MOST_NODES, 8)
        reader.count(1, 0)
        pos = reader.members(1, 1, visit, MOST_NODES_OF_ENTRY)
        pos = SPACES.match(header, pos).end()
        need(pos == len(header), "FORMAT",
             f"byte {8 + pos} follows the header's last }} and is no space", 8 + pos)
        n_dims = sum(len(tensor.shape) for tensor in self.tensors.values())
        need(n_dims <= MOST_DIMS, "FORMAT", f"{n_dims} dimensions in all shapes")
        for tensor in self.tensors.values():
            tensor.file = self

    def view(self, tensor, dtype):
        """A tensor's bytes as elements, at whatever address they lie."""
        return np.frombuffer(self.bytes, np.uint8, tensor.end - tensor.begin,
                             self.data_begin + tensor.begin).view(dtype)


class Checkpoint:
    """Tensors by name, from one file or from shards."""

    def __init__(self, files):
        self.sharded = len(files) > 1
        self.tensors = {}
        for file in files:
            self.tensors.update(file.tensors)
        self.quant = files[0].metadata.get("quant")

    def find(self, name):
        need(name in self.tensors, "NOT_FOUND", f"there is no tensor {name!r}")
        return self.tensors[name]

    def check_shape(self, name, shape):
        found = self.find(name).shape
        need(found == tuple(shape), "FORMAT",
             f"tensor {name!r} has the shape {list(found)}, {list(shape)} is needed")

    def check_dtype(self, name, *allowed):
        found = self.find(name).dtype
        need(found in allowed, "UNSUPPORTED",
             f"tensor {name!r} is {found}, only {', '.join(allowed)} can be read here")

    def f32(self, name, shape):
        """safetensors#11; the values in a row, since a shape may have any length."""
        tensor = self.find(name)
        self.check_dtype(name, "F32", "F16", "BF16")
        self.check_shape(name, shape)
        if tensor.dtype == "F32":
            values = tensor.file.view(tensor, "<f4").astype(np.float32)
        else:
            widen = f16_to_f32 if tensor.dtype == "F16" else bf16_to_f32
            values = widen(tensor.file.view(tensor, "<u2"))
        return values

    def q4(self, base, n_out, n_in, group):
        """The pair NAME.qweight and NAME.scales as they lie, checked by safetensors#12."""
        check_group(n_in, group)
        qweight, scales = base + ".qweight", base + ".scales"
        for name, dtype, shape in ((qweight, "U8", (n_out, n_in // 2)),
                                   (scales, "F16", (n_out, n_in // group))):
            self.check_dtype(name, dtype)
            self.check_shape(name, shape)
        tensor = self.tensors[scales]
        bits = tensor.file.view(tensor, "<u2")
        wrong = np.flatnonzero(bits >= 0x7C00)
        if len(wrong):
            offset = tensor.file.data_begin + tensor.begin + 2 * int(wrong[0])
            raise Refusal("FORMAT", f"{scales} holds the scale {bits[wrong[0]]:04x}, which is NaN,"
                          f" infinite or has its sign bit set", offset)
        tensor = self.tensors[qweight]
        return (tensor.file.view(tensor, np.uint8).reshape(n_out, n_in // 2),
                bits.reshape(n_out, n_in // group))


def read_index(path):
    """safetensors#shards.index and #shards.names: {tensor: file}."""
    index = parse_object(read_whole(path, 16 << 20), 16 << 20, 100_000, INDEX)
    weight_map = index.get("weight_map")
    need(isinstance(weight_map, dict) and weight_map, "FORMAT",
         f"{INDEX}: weight_map is no object with a tensor in it")
    for tensor, name in weight_map.items():
        need(isinstance(name, str), "FORMAT",
             f"{INDEX}: the file of tensor {tensor!r} is no string")
        need(name.endswith(".safetensors") and "/" not in name and "\\" not in name,
             "FORMAT",
             f"{INDEX}: tensor {tensor!r} is in {name!r}, which is no plain name of a "
             f".safetensors file beside it")
    return weight_map


def open_shards(directory, weights):
    weight_map = read_index(os.path.join(directory, INDEX))
    files, held = [], {}
    for name in sorted(set(weight_map.values())):
        file = File(os.path.join(directory, name), weights)
        for tensor in file.tensors:
            need(tensor not in held, "FORMAT",
                 f"tensor {tensor!r} is in {held.get(tensor)!r} and in {name!r}")
            need(weight_map.get(tensor) == name, "FORMAT",
                 f"{name!r} holds tensor {tensor!r}, which the index has in "
                 f"{weight_map.get(tensor)!r}")
            held[tensor] = name
        need(not files or file.metadata.get("quant") == files[0].metadata.get("quant"), "FORMAT",
             f"the shards do not agree on quant, {name!r} says {file.metadata.get('quant')!r}")
        files.append(file)
    for tensor, name in weight_map.items():
        need(tensor in held, "FORMAT", f"the index has tensor {tensor!r} in {name!r}, "
             "which does not hold it")
    return Checkpoint(files)


def open_checkpoint(directory, weights="map"):
    """safetensors#shards.both: the index or the single file, not both."""
    index, single = (os.path.lexists(os.path.join(directory, name)) for name in (INDEX, SINGLE))
    need(not (index and single), "FORMAT", f"{directory} has both {INDEX} and {SINGLE}")
    if index:
        return open_shards(directory, weights)
    return Checkpoint([File(os.path.join(directory, SINGLE), weights)])
