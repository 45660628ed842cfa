"""config#fit and config#names: a checkpoint that fits its config, as matrices of f32."""
import re

import numpy as np

from .config import load_config
from .forward import Bigram, Llama
from .numbers16 import check_group, dequantize, quantize
from .refusal import need
from .safetensors import open_checkpoint

PLAIN_TYPES = "F32", "F16", "BF16"


def layer_tensors(c):
    """Short name: (name in the file, shape, quantized or not)."""
    d, wide = c["hidden_size"], c["intermediate_size"]
    q, kv = c["n_heads"] * c["head_dim"], c["n_kv_heads"] * c["head_dim"]
    return {"norm1": ("input_layernorm", (d,), False),
            "norm2": ("post_attention_layernorm", (d,), False),
            "q": ("self_attn.q_proj", (q, d), True), "k": ("self_attn.k_proj", (kv, d), True),
            "v": ("self_attn.v_proj", (kv, d), True), "o": ("self_attn.o_proj", (d, q), True),
            "gate": ("mlp.gate_proj", (wide, d), True), "up": ("mlp.up_proj", (wide, d), True),
            "down": ("mlp.down_proj", (d, wide), True)}


def group_of(quant):
    """The g of `quant`, safetensors#int4.metadata."""
    match = re.fullmatch(r"int4-g([0-9]+)-sym", quant)
    need(match, "UNSUPPORTED", f"quant is {quant!r}, only int4-g<g>-sym is known")
    need(match[1][0] != "0" and len(match[1]) < 20 and int(match[1]) % 2 == 0, "FORMAT",
         f"quant is {quant!r}, its group must be even and divide the columns, without "
         "leading zeros")
    return int(match[1])


class Loader:
    """Reads tensors by name and remembers which, so that what is left over is seen."""

    def __init__(self, checkpoint, int4_group):
        self.checkpoint = checkpoint
        self.at_load = int4_group
        need(checkpoint.quant is None or not int4_group, "INVALID",
             f"int4 in groups of {int4_group} is asked for, and the file has quant "
             f"{checkpoint.quant!r} already")
        self.stored = 0 if checkpoint.quant is None else group_of(checkpoint.quant)
        self.taken = set()

    def plain(self, base, shape):
        name = base + ".weight"
        self.checkpoint.check_dtype(name, *PLAIN_TYPES)
        self.taken.add(name)
        return self.checkpoint.f32(name, shape).reshape(shape)

    def matrix(self, base, shape, quantized):
        """A norm, the embedding, or a linear weight in whichever form it comes."""
        if quantized and self.stored:
            need(shape[1] % self.stored == 0, "FORMAT",
                 f"quant has groups of {self.stored}, {base} has {shape[1]} columns")
            pair = self.checkpoint.q4(base, *shape, self.stored)
            self.taken |= {base + ".qweight", base + ".scales"}
            return dequantize(*pair, self.stored)
        if quantized and self.at_load:
            check_group(shape[1], self.at_load)
            w = self.plain(base, shape)
            return dequantize(*quantize(w, self.at_load, base), self.at_load)
        return self.plain(base, shape)

    def check_tied_head(self):
        """config#fit.tied: a stored head must be the embedding's bytes."""
        head = self.checkpoint.tensors.get("lm_head.weight")
        if head is None:
            return
        embed = self.checkpoint.find("model.embed_tokens.weight")
        same = (head.dtype, head.shape) == (embed.dtype, embed.shape) and np.array_equal(
            head.file.view(head, np.uint8), embed.file.view(embed, np.uint8))
        need(same, "UNSUPPORTED", "the head is tied, and lm_head.weight is not the embedding")
        self.taken.add("lm_head.weight")

    def check_left(self):
        for name in self.checkpoint.tensors:
            need(name in self.taken or name.endswith("rotary_emb.inv_freq"), "UNSUPPORTED",
                 f"the config does not call for tensor {name!r}")


def load_llama(loader, c):
    d, vocab_size = c["hidden_size"], c["vocab_size"]
    tensors = {"embed": loader.plain("model.embed_tokens", (vocab_size, d)), "layers": [],
               "norm": loader.plain("model.norm", (d,))}
    for i in range(c["n_layers"]):
        tensors["layers"].append({
            short: loader.matrix(f"model.layers.{i}.{name}", shape, quantized)
            for short, (name, shape, quantized) in layer_tensors(c).items()})
    if c["tie_word_embeddings"]:
        loader.check_tied_head()
        tensors["head"] = tensors["embed"]
    else:
        tensors["head"] = loader.matrix("lm_head", (vocab_size, d), True)
    loader.check_left()
    return Llama(c, tensors)


def load_bigram(loader, c):
    need(not loader.at_load, "INVALID", "a bigram is never quantized, int4_group must be 0")
    need(not loader.stored, "UNSUPPORTED", "quant is set, a bigram is never quantized")
    tensors = {"bigram": loader.plain("bigram", (c["vocab_size"],) * 2)}
    loader.check_left()
    return Bigram(c, tensors)


def load_model(directory, weights="map", int4_group=0):
    """(config, model)."""
    config = load_config(directory)
    loader = Loader(open_checkpoint(directory, weights), int4_group)
    load = load_llama if config["arch"] == "llama" else load_bigram
    return config, load(loader, config)
