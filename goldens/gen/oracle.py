"""The slow second opinion: a pure-Python reader of checkpoints and configs, rule by rule.

It follows conformance/spec (safetensors.md, config.md) and nothing else.  The generators
safetensors_cases.py and config_cases.py write down by hand what they expect of each case; this
reader must say the same, or the generator stops.  parse_json() is written out here because Python's
json accepts what the pages refuse (duplicate keys, NaN, lone surrogates, any depth).
"""

import re
import struct

HEADER_BYTES_MAX = 100000000
DEPTH_MAX = 64
HEADER_NODES_MAX = 16000000
DIMS_MAX = 8000000
ENTRY_NODES_MAX = 250000
CONFIG_NODES_MAX = 100000
CONFIG_BYTES_MAX = 1 << 20
INDEX_BYTES_MAX = 16 << 20
INT64_MAX = (1 << 63) - 1
COUNT_MAX = 1 << 24
LAYERS_MAX = 1 << 16
BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
        **dict.fromkeys("BOOL U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ".split(), 8),
        **dict.fromkeys("I16 U16 F16 BF16".split(), 16), **dict.fromkeys("I32 U32 F32".split(), 32),
        **dict.fromkeys("C64 F64 I64 U64".split(), 64)}
FOREIGN = ((b"version https://git-lfs", "LFS"), (b"PK\x03\x04", "ZIP"), (b"PK\x05\x06", "ZIP"), (b"GGUF", "GGUF"),
           (b"\x00\x05\x16\x07", "AppleDouble"))
HTML = (b"<!doctype", b"<html", b"<head", b"<body")


class Fault(Exception):
    """A refusal: status, rule of the page, what the message must name, and where."""

    def __init__(self, status, rule, subject=None, offset=None):
        super().__init__(f"{status} rule {rule} {subject} at {offset}")
        self.status, self.rule, self.subject, self.offset = status, rule, subject, offset


# ---------------------------------------------------------------------------------- JSON

class Integer(int):
    """A JSON number written as an integer."""


class Real(float):
    """A JSON number written with a point or an exponent."""


_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_STRING = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_ANY_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.S)
_SPACE = re.compile(rb"[ \t\r\n]*")
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")


class Bad(Exception):
    """The bytes are no acceptable JSON; base gives the offset in the text when it is known."""

    def __init__(self, why, offset=None, rule=4):
        super().__init__(why)
        self.offset, self.rule = offset, rule


def text_rules(data):
    """Bytes that are refused wherever they stand: NUL, wrong UTF-8 (surrogates included)."""
    nul = data.find(b"\0")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        if nul < 0 or error.start < nul:
            raise Bad("UTF-8", error.start, 3) from None
    if nul >= 0:
        raise Bad("NUL", nul, 3)


def bare(data):
    """The text without strings and spaces, for counting."""
    return re.sub(rb"[ \t\r\n]+", b"", _ANY_STRING.sub(b'"', data))


def measure(data):
    """(levels, nodes) of a text without looking at its grammar; the outermost is level 1."""
    text = bare(data)
    opens = text.count(b"[") + text.count(b"{")
    empty = text.count(b"[]") + text.count(b"{}")
    nodes = 1 + text.count(b",") + opens - empty
    depth = deepest = 0
    for found in re.finditer(rb"[][{}]", text) if opens < 1000000 else ():
        depth += 1 if found.group() in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest, nodes


class Parser:
    def __init__(self, data):
        self.data, self.at = data, 0

    def space(self):
        self.at = _SPACE.match(self.data, self.at).end()

    def peek(self):
        self.space()
        return self.data[self.at:self.at + 1]

    def take(self, byte):
        if self.peek() != byte:
            raise Bad(f"{byte!r} expected", self.at)
        self.at += 1

    def value(self):
        first = self.peek()
        if first == b"{":
            return self.object()
        if first == b"[":
            return self.array()
        if first == b'"':
            return self.string()
        for word, value in ((b"true", True), (b"false", False), (b"null", None)):
            if self.data.startswith(word, self.at):
                self.at += len(word)
                return value
        return self.number()

    def number(self):
        found = _NUMBER.match(self.data, self.at)
        if not found:
            raise Bad("a value expected", self.at)
        self.at = found.end()
        text = found.group().decode()
        if found.group(1) or found.group(2):
            value = float(text)
            if value in (float("inf"), float("-inf")):
                raise Bad("a number out of range", found.start())
            return Real(value)
        value = int(text)
        if not -INT64_MAX - 1 <= value <= INT64_MAX:
            raise Bad("an integer past int64", found.start(), 6)
        return Integer(value)

    def string(self):
        found = _STRING.match(self.data, self.at)
        if not found:
            raise Bad("a string", self.at)
        self.at = found.end()
        text = found.group()[1:-1].decode("utf-8")
        if "\\" not in text:
            return text
        units = _ESCAPE.sub(self.unescape, text).encode("utf-16-le", "surrogatepass")
        try:
            return units.decode("utf-16-le")
        except UnicodeDecodeError:
            raise Bad("a lone surrogate", None, 3) from None

    @staticmethod
    def unescape(found):
        escape = found.group(1)
        if escape[0] == "u" and len(escape) == 5:
            code = int(escape[1:], 16)
            if code == 0:
                raise Bad("an escaped NUL", None, 3)
            return chr(code)
        return _ESCAPES.get(escape, escape)

    def array(self):
        self.take(b"[")
        out = []
        if self.peek() == b"]":
            self.at += 1
            return out
        while True:
            out.append(self.value())
            if self.peek() == b",":
                self.at += 1
                continue
            self.take(b"]")
            return out

    def object(self):
        self.take(b"{")
        out = {}
        if self.peek() == b"}":
            self.at += 1
            return out
        while True:
            if self.peek() != b'"':
                raise Bad("a key expected", self.at)
            key = self.string()
            if key in out:
                raise Bad(f"duplicate key {key}", None, 4)
            self.take(b":")
            out[key] = self.value()
            if self.peek() == b",":
                self.at += 1
                continue
            self.take(b"}")
            return out


def parse_json(data, nodes_max):
    """The value of a whole text, or Bad."""
    text_rules(data)
    depth, nodes = measure(data)
    if depth > DEPTH_MAX:
        raise Bad("too deep")
    if nodes > nodes_max:
        raise Bad("too many nodes")
    parser = Parser(data)
    value = parser.value()
    parser.space()
    if parser.at != len(data):
        raise Bad("text after the value", parser.at)
    return value


def count_nodes(value):
    if isinstance(value, dict):
        return 1 + sum(count_nodes(v) for v in value.values())
    if isinstance(value, list):
        return 1 + sum(1 if not isinstance(v, (dict, list)) else count_nodes(v) for v in value)
    return 1


# --------------------------------------------------------------------------- safetensors

class Tensor:
    def __init__(self, name, dtype, shape, begin, end, data, data_start):
        self.name, self.dtype, self.shape = name, dtype, shape
        self.begin, self.end, self.data = begin, end, data
        self.file_offset = data_start + begin

    def bytes(self):
        return self.data[self.begin:self.end]

    def f32(self):
        """The bits of every element widened to f32."""
        raw = self.bytes()
        if self.dtype == "F32":
            return [b for b, in struct.iter_unpack("<I", raw)]
        if self.dtype == "BF16":
            return [b << 16 for b, in struct.iter_unpack("<H", raw)]
        if self.dtype == "F16":
            return [widen_f16(b) for b, in struct.iter_unpack("<H", raw)]
        raise Fault("UNSUPPORTED", 11, self.name)


def widen_f16(bits):
    """By way of struct's own f16, so that f16.py is not its own witness; NaN bits are kept."""
    if bits & 0x7C00 == 0x7C00:
        return (bits & 0x8000) << 16 | 0x7F800000 | (bits & 0x3FF) << 13
    value, = struct.unpack(">e", bits.to_bytes(2, "big"))
    return int.from_bytes(struct.pack(">f", value), "big")


def foreign_kind(data):
    for magic, kind in FOREIGN:
        if data.startswith(magic):
            return kind
    if data.lstrip(b" \t\r\n").lower().startswith(HTML):
        return "HTML"
    if not data:
        return "empty"
    return None if data.strip(b"\0") else "zero"


def header_of(data):
    """Rules 1 to 3; the header's bytes and the data buffer."""
    kind = foreign_kind(data)
    if len(data) < 8:
        raise Fault("FORMAT", 1, kind)
    n, = struct.unpack("<Q", data[:8])
    if n > HEADER_BYTES_MAX or n > len(data) - 8:
        raise Fault("FORMAT", 2, kind)
    header = data[8:8 + n]
    if header[:1] != b"{":
        raise Fault("FORMAT", 3, kind, 8 if header else None)
    try:
        text_rules(header)
    except Bad as bad:
        raise Fault("FORMAT", 3, None, 8 + bad.offset) from None
    last = header.rfind(b"}")
    tail = header[last + 1:]
    if last >= 0 and tail.strip(b" "):
        first = len(tail) - len(tail.lstrip(b" "))
        raise Fault("FORMAT", 3, None, 8 + last + 1 + first)
    return header[:last + 1] if last >= 0 else header, data[8 + n:]


def is_count(value):
    return isinstance(value, Integer) and value >= 0


def entry_of(name, entry, data, data_start):
    """Rules 6 to 8 for one tensor."""
    def need(condition, rule):
        if not condition:
            raise Fault("FORMAT", rule, name)

    need(isinstance(entry, dict), 6)
    dtype, shape, offsets = (entry.get(k) for k in ("dtype", "shape", "data_offsets"))
    need(isinstance(dtype, str), 6)
    need(isinstance(shape, list) and all(is_count(d) for d in shape), 6)
    need(isinstance(offsets, list) and len(offsets) == 2 and all(is_count(o) for o in offsets), 6)
    need(dtype in BITS, 7)
    product = 1
    for d in [*shape, BITS[dtype]]:
        product *= d
        need(product < 1 << 64, 8)
    begin, end = offsets
    need(product % 8 == 0 and end >= begin and product // 8 == end - begin, 8)
    return Tensor(name, dtype, [int(d) for d in shape], int(begin), int(end), data,
                  data_start)


def parse_safetensors(data):
    """{name: Tensor} and the metadata of a file, or Fault."""
    header, buffer = header_of(data)
    try:
        top = parse_json(header, HEADER_NODES_MAX)
    except Bad as bad:
        raise Fault("FORMAT", bad.rule) from None
    assert isinstance(top, dict)
    for value in top.values():
        if count_nodes(value) > ENTRY_NODES_MAX:
            raise Fault("FORMAT", 4)
    metadata = top.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise Fault("FORMAT", 5, "__metadata__")
    for key, value in metadata.items():
        if not isinstance(value, str):
            raise Fault("FORMAT", 5, key)
    data_start = len(data) - len(buffer)
    tensors = {name: entry_of(name, entry, buffer, data_start) for name, entry in top.items()}
    if sum(len(t.shape) for t in tensors.values()) > DIMS_MAX:
        raise Fault("FORMAT", 6)
    at = 0
    for t in sorted(tensors.values(), key=lambda t: (t.begin, t.end)):
        if t.begin != at:
            raise Fault("FORMAT", 9, t.name)
        at = t.end
    if at != len(buffer):
        raise Fault("FORMAT", 9)
    return tensors, metadata


def read_f32(tensors, name, shape):
    if name not in tensors:
        raise Fault("NOT_FOUND", 11, name)
    if tensors[name].shape != shape:
        raise Fault("FORMAT", 11, name)
    return tensors[name].f32()


def plain_name(name):
    return (isinstance(name, str) and name.endswith(".safetensors") and "\0" not in name
            and "/" not in name and "\\" not in name)


def parse_checkpoint(files):
    """All tensors of a directory given as {name: bytes or None}, and its metadata."""
    index, single = "model.safetensors.index.json", "model.safetensors"
    if index not in files:
        if files.get(single) is None:
            raise Fault("IO", 1, single)
        return parse_safetensors(files[single])
    if single in files:
        raise Fault("FORMAT", 13, index)
    if len(files[index]) > INDEX_BYTES_MAX:
        raise Fault("FORMAT", 13)
    try:
        top = parse_json(files[index], CONFIG_NODES_MAX)
    except Bad:
        raise Fault("FORMAT", 13) from None
    weight_map = top.get("weight_map") if isinstance(top, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise Fault("FORMAT", 13, "weight_map")
    for tensor, shard in weight_map.items():
        if not plain_name(shard):
            raise Fault("FORMAT", 13, tensor)
    return join_shards(files, weight_map)


def join_shards(files, weight_map):
    shards = {}
    for shard in sorted(set(weight_map.values())):
        if files.get(shard) is None:
            raise Fault("IO", 13, shard)
        shards[shard] = parse_safetensors(files[shard])
    tensors = {}
    for shard, (found, _) in shards.items():
        for name, tensor in found.items():
            if name in tensors or weight_map.get(name) != shard:
                raise Fault("FORMAT", 13, name)
            tensors[name] = tensor
    for name, shard in weight_map.items():
        if name not in shards[shard][0]:
            raise Fault("FORMAT", 13, name)
    quants = {metadata.get("quant") for _, metadata in shards.values()}
    if len(quants) > 1:
        raise Fault("FORMAT", 12, "quant")
    return tensors, {"quant": quants.pop()} if quants != {None} else {}


# -------------------------------------------------------------------------- config.json

BIASES = ("attention_bias", "mlp_bias", "bias", "qkv_bias", "use_qk_norm")
FOREIGN_KEYS = ("quantization_config quantization compression_config text_config num_local_experts "
                "no_rope_layers attn_logit_softcapping final_logit_softcapping logit_scale "
                "logits_scaling embedding_multiplier residual_multiplier attention_multiplier "
                "auto_map").split()
FAMILIES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM"}


class Config:
    """Reads one config in the order of the page: what is unsupported first, then the rest."""

    def __init__(self, top):
        self.top = {k: x for k, x in top.items() if x is not None}

    def refuse(self, status, key, subject=None):
        raise Fault(status, 0, subject or key)

    def allowed(self, key, names):
        """A string of a short list, or absent."""
        value = self.top.get(key)
        if value is not None and not (isinstance(value, str) and value in names):
            self.refuse("UNSUPPORTED" if isinstance(value, str) else "FORMAT", key)
        return value

    def count(self, key, default=None, high=COUNT_MAX, low=1):
        value = self.top.get(key)
        if value is None:
            if default is None:
                self.refuse("FORMAT", key)
            return default
        if not isinstance(value, Integer) or not low <= value <= high:
            self.refuse("FORMAT", key)
        return int(value)

    def positive(self, holder, key):
        """A finite number that is > 0 also as an f32, or None when absent."""
        value = holder.get(key)
        if value is None:
            return None
        if not isinstance(value, (Integer, Real)):
            self.refuse("FORMAT", key)
        try:
            small = struct.unpack(">f", struct.pack(">f", float(value)))[0]
        except OverflowError:
            self.refuse("FORMAT", key)
        if not small > 0:
            self.refuse("FORMAT", key)
        return float(value)

    def one(self, holder, key):
        value = holder.get(key)
        if value is None:
            return
        if not isinstance(value, (Integer, Real)):
            self.refuse("FORMAT", key)
        if value != 1:
            self.refuse("UNSUPPORTED", key)

    def rope(self, key, type_needed):
        """The theta inside rope_scaling or rope_parameters, which must be the default scheme."""
        value = self.top.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.refuse("FORMAT", key)
        inner = {k: x for k, x in value.items() if x is not None}
        types = [inner[k] for k in ("rope_type", "type") if k in inner]
        for name in types:
            if not isinstance(name, str):
                self.refuse("FORMAT", key)
            if name != "default":
                self.refuse("UNSUPPORTED", key, name)
        if type_needed and not types:
            self.refuse("UNSUPPORTED", key)
        for name in inner:
            if name not in ("rope_type", "type", "rope_theta", "partial_rotary_factor"):
                self.refuse("UNSUPPORTED", key, name)
        self.one(inner, "partial_rotary_factor")
        return self.positive(inner, "rope_theta")

    def unsupported_rows(self):
        top = self.top
        self.allowed("model_type", FAMILIES)
        names = top.get("architectures")
        if names is not None:
            if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
                self.refuse("FORMAT", "architectures")
            if len(names) != 1 or names[0] not in FAMILIES.values():
                self.refuse("UNSUPPORTED", "architectures")
        use_window = top.get("use_sliding_window")
        if use_window is not None and not isinstance(use_window, bool):
            self.refuse("FORMAT", "use_sliding_window")
        if "sliding_window" in top and use_window is not False:
            self.refuse("UNSUPPORTED", "sliding_window")
        layers = top.get("layer_types", [])
        if not isinstance(layers, list):
            self.refuse("FORMAT", "layer_types")
        if any(name != "full_attention" for name in layers):
            self.refuse("UNSUPPORTED", "layer_types")
        for key in BIASES:
            if key in top and not isinstance(top[key], bool):
                self.refuse("FORMAT", key)
            if top.get(key):
                self.refuse("UNSUPPORTED", key)
        self.one(top, "partial_rotary_factor")
        self.allowed("position_embedding_type", ("rope",))
        for key in ("hidden_act", "hidden_activation"):
            self.allowed(key, ("silu", "swish"))
        for key in FOREIGN_KEYS:
            if key in top:
                self.refuse("UNSUPPORTED", key)

    def theta(self):
        found = [self.rope("rope_scaling", True), self.rope("rope_parameters", False),
                 self.positive(self.top, "rope_theta")]
        found = [theta for theta in found if theta is not None]
        if len(set(found)) > 1:
            self.refuse("FORMAT", "rope_theta")
        return found[0] if found else 10000.0

    def eos(self, vocab):
        value = self.top.get("eos_token_id")
        if value is None:
            return []
        ids = value if isinstance(value, list) else [value]
        good = all(is_count(i) and i < vocab for i in ids)
        if not good or not 1 <= len(ids) <= 16 or len(set(ids)) != len(ids):
            self.refuse("FORMAT", "eos_token_id")
        return [int(i) for i in ids]

    def required(self, key, names):
        if key not in self.top:
            self.refuse("UNSUPPORTED", key)
        return self.allowed(key, names)

    def parse(self):
        arch = self.required("tl_arch", ("llama", "bigram"))
        tokenizer = self.required("tl_tokenizer", ("byte", "bpe"))
        parsed = {"arch": arch, "tokenizer": tokenizer}
        if arch == "llama":
            self.unsupported_rows()
            theta = self.theta()
        parsed["vocab_size"] = self.count("vocab_size", low=256 if tokenizer == "byte" else 1)
        if arch == "llama":
            parsed.update(self.llama(theta))
        parsed["max_positions"] = self.count("max_position_embeddings", 2048)
        parsed["eos_token_ids"] = self.eos(parsed["vocab_size"])
        return parsed

    def llama(self, theta):
        tie = self.top.get("tie_word_embeddings", False)
        if not isinstance(tie, bool):
            self.refuse("FORMAT", "tie_word_embeddings")
        hidden, inner, heads = (self.count(k) for k in (
            "hidden_size", "intermediate_size", "num_attention_heads"))
        layers = self.count("num_hidden_layers", high=LAYERS_MAX)
        kv_heads = self.count("num_key_value_heads", heads)
        if heads % kv_heads:
            self.refuse("FORMAT", "num_key_value_heads")
        if "head_dim" not in self.top and hidden % heads:
            self.refuse("FORMAT", "hidden_size")
        head_dim = self.count("head_dim", hidden // heads if hidden >= heads else 1)
        if head_dim % 2 or head_dim < 2:
            self.refuse("FORMAT", "head_dim")
        eps = self.positive(self.top, "rms_norm_eps")
        if eps is None:
            self.refuse("FORMAT", "rms_norm_eps")
        return {"hidden_size": hidden, "intermediate_size": inner, "n_layers": layers,
                "n_heads": heads, "n_kv_heads": kv_heads, "head_dim": head_dim,
                "rope_theta": theta, "rms_norm_eps": eps, "tie_word_embeddings": tie}


def parse_config(data):
    if len(data) > CONFIG_BYTES_MAX:
        raise Fault("FORMAT", 0)
    try:
        top = parse_json(data, CONFIG_NODES_MAX)
    except Bad:
        raise Fault("FORMAT", 0) from None
    if not isinstance(top, dict):
        raise Fault("FORMAT", 0)
    return Config(top).parse()


# ----------------------------------------------------------------------- config and weights

PROJECTIONS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
               "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


def tensors_of(cfg):
    """{name: shape} that a config calls for, and the names of the linear weights."""
    if cfg["arch"] == "bigram":
        return {"bigram.weight": [cfg["vocab_size"]] * 2}, []
    d, inner = cfg["hidden_size"], cfg["intermediate_size"]
    q, kv = (cfg[h] * cfg["head_dim"] for h in ("n_heads", "n_kv_heads"))
    shapes = ([q, d], [kv, d], [kv, d], [d, q], [inner, d], [inner, d], [d, inner])
    want = {"model.embed_tokens.weight": [cfg["vocab_size"], d], "model.norm.weight": [d]}
    linear = []
    for n in range(cfg["n_layers"]):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            want[f"model.layers.{n}.{norm}.weight"] = [d]
        for name, shape in zip(PROJECTIONS, shapes):
            linear.append(f"model.layers.{n}.{name}.weight")
            want[linear[-1]] = shape
    if not cfg["tie_word_embeddings"]:
        want["lm_head.weight"] = [cfg["vocab_size"], d]
        linear.append("lm_head.weight")
    return want, linear


def group_of(quant):
    found = re.fullmatch(r"int4-g([1-9][0-9]*)-sym", quant)
    if not found:
        raise Fault("FORMAT", 12, "quant")
    return int(found.group(1))


def load_model(cfg, tensors, metadata, int4_group=0):
    """Whether config and weights fit both ways; raises Fault otherwise."""
    want, linear = tensors_of(cfg)
    left = {n for n in tensors if not n.endswith("rotary_emb.inv_freq")}
    if cfg.get("tie_word_embeddings") and "lm_head.weight" in left:
        head, embed = tensors["lm_head.weight"], tensors.get("model.embed_tokens.weight")
        if embed is None or (head.dtype, head.shape, head.bytes()) != (
                embed.dtype, embed.shape, embed.bytes()):
            raise Fault("UNSUPPORTED", 0, "lm_head.weight")
        left.discard("lm_head.weight")
    if "quant" in metadata:
        if int4_group:
            raise Fault("INVALID", 12, "quant")
        left -= int4_pairs(tensors, want, linear, group_of(metadata["quant"]))
    for name, shape in want.items():
        if name not in tensors:
            raise Fault("NOT_FOUND", 0, name)
        if tensors[name].dtype not in ("F32", "F16", "BF16"):
            raise Fault("UNSUPPORTED", 0, name)
        if tensors[name].shape != shape:
            raise Fault("FORMAT", 0, name)
        left.discard(name)
    if left:
        raise Fault("UNSUPPORTED", 0, min(left))
    if int4_group:
        quantize_all(tensors, want, linear, int4_group)


def int4_pairs(tensors, want, linear, group):
    """Checks every pair, takes it out of want and gives the names that were used."""
    used = set()
    for name in linear:
        out, columns = want.pop(name)
        base = name.removesuffix(".weight")
        if group % 2 or columns % group:
            raise Fault("FORMAT", 12, "quant")
        for suffix, dtype, shape in (("qweight", "U8", [out, columns // 2]),
                                     ("scales", "F16", [out, columns // group])):
            full = f"{base}.{suffix}"
            if full not in tensors:
                raise Fault("NOT_FOUND", 12, full)
            if tensors[full].dtype != dtype:
                raise Fault("UNSUPPORTED", 12, full)
            if tensors[full].shape != shape:
                raise Fault("FORMAT", 12, full)
            used.add(full)
        scales = tensors[f"{base}.scales"]
        for i, (bits,) in enumerate(struct.iter_unpack("<H", scales.bytes())):
            if bits & 0x8000 or bits & 0x7C00 == 0x7C00:
                raise Fault("FORMAT", 12, scales.name, scales.file_offset + 2 * i)
    return used


def quantize_all(tensors, want, linear, group):
    for name in linear:
        if group % 2 or want[name][1] % group:
            raise Fault("INVALID", 12, name)
        for bits in tensors[name].f32():
            if bits & 0x7F800000 == 0x7F800000:
                raise Fault("INVALID", 12, name)
