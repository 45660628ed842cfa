"""The table of the golden models and their prompts, and how both are drawn from a seed."""
import hashlib
import json
import zlib

import numpy as np

TRAINED = "kjv"
TRAINED_SHA256 = "690b9e123cb8e2b4d88b49ccfe8a76e294ff1cfa3b9e9a08eaf520b59714ec5c"

# Each entry: the config.json as it is written (tl_arch apart), how the file is stored, and the
# lengths of its prompts. Between them they hold what conformance/spec/vectors.md asks for.
#   dtype   one for all tensors, or {part of a name: dtype}, the first match counting
#   pad     False leaves the header at an odd length, so that no tensor of the file is aligned
#   order   "first": the embedding first in the file, so that an id past the vocabulary reads into
#           the next tensor and not past the file; "last": the other way round
#   hidden  which prompt also gets the last hidden state of all its tokens
SPECS = [
    {
        "name": "gqa-f32",
        "about": "GQA, untied, F32, theta by default, a prompt as long as the context",
        "config": {
            "tl_tokenizer": "byte", "model_type": "llama", "architectures": ["LlamaForCausalLM"],
            "vocab_size": 256, "hidden_size": 48, "intermediate_size": 96,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu",
            "tie_word_embeddings": False, "eos_token_id": 0,
            # What else a config.json of the field holds, all of it without effect.
            "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1,
            "initializer_range": 0.02, "mlp_bias": False, "pad_token_id": None,
            "pretraining_tp": 1, "rope_scaling": None, "torch_dtype": "float32",
            "transformers_version": "4.57.6", "use_cache": True,
        },
        "dtype": "F32", "logits": [1, 4, 17, 33, 128], "hidden": 17, "greedy": [9, 40],
    },
    {
        "name": "mha-f16",
        "about": "MHA (no num_key_value_heads), tied, F16, hidden 44 is no multiple of 8",
        "config": {
            "tl_tokenizer": "bpe", "model_type": "llama", "vocab_size": 97, "hidden_size": 44,
            "intermediate_size": 76, "num_hidden_layers": 3, "num_attention_heads": 2,
            "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 500000.0,
            "tie_word_embeddings": True,
        },
        "dtype": "F16", "logits": [1, 5, 16, 64], "hidden": 16, "greedy": [8, 33],
    },
    {
        "name": "mqa-bf16",
        "about": "MQA, untied, BF16, theta 1e6 inside rope_parameters, odd vocabulary",
        "config": {
            "tl_tokenizer": "byte", "model_type": "llama", "architectures": ["LlamaForCausalLM"],
            "vocab_size": 257, "hidden_size": 40, "intermediate_size": 104,
            "num_hidden_layers": 2, "num_attention_heads": 5, "num_key_value_heads": 1,
            "max_position_embeddings": 96, "rms_norm_eps": 1e-5, "eos_token_id": [256],
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        },
        "dtype": "BF16", "logits": [1, 7, 31, 96], "hidden": 31, "greedy": [12, 65],
    },
    {
        "name": "wide-heads-f32",
        "about": "heads x head_dim = 64 above hidden 36, tied, theta 5000 in rope_parameters, "
                 "unaligned data",
        "config": {
            "tl_tokenizer": "bpe", "model_type": "llama", "vocab_size": 120, "hidden_size": 36,
            "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256,
            "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
            "rope_parameters": {"rope_theta": 5000},
        },
        "dtype": "F32", "pad": False, "logits": [2, 8, 32, 65], "hidden": 32, "greedy": [6, 48],
    },
    {
        "name": "narrow-heads-bf16",
        "about": "heads x head_dim = 30 below hidden 60, MHA, untied, eps 0.02, embedding last",
        "config": {
            "tl_tokenizer": "bpe", "model_type": "llama", "architectures": ["LlamaForCausalLM"],
            "vocab_size": 101, "hidden_size": 60, "intermediate_size": 100,
            "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 3,
            "head_dim": 10, "max_position_embeddings": 80, "rms_norm_eps": 0.02,
            "rope_theta": 2000.5, "tie_word_embeddings": False,
        },
        "dtype": "BF16", "order": "last", "logits": [1, 6, 15, 80], "hidden": 15,
        "greedy": [10, 49],
    },
    {
        "name": "long-bf16",
        "about": "context 1024 and prompts up to 700 tokens, untied, BF16",
        "config": {
            "tl_tokenizer": "bpe", "model_type": "llama", "vocab_size": 128, "hidden_size": 32,
            "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0,
                                "partial_rotary_factor": 1.0},
        },
        "dtype": "BF16", "logits": [3, 64, 257, 700], "hidden": 64, "greedy": [100, 400],
    },
    {
        "name": "deep-f16",
        "about": "six layers, MHA, head_dim 6, F16, theta 150 in rope_scaling of type default",
        "config": {
            "tl_tokenizer": "byte", "model_type": "llama", "architectures": ["LlamaForCausalLM"],
            "vocab_size": 256, "hidden_size": 24, "intermediate_size": 56,
            "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 4,
            "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
            "rope_scaling": {"rope_type": "default", "rope_theta": 150.0},
        },
        "dtype": "F16", "logits": [4, 20, 50], "hidden": 20, "greedy": [7, 30],
    },
    {
        "name": "mistral-f16",
        "about": "model_type mistral without a window, three query heads a KV head, unaligned data",
        "config": {
            "tl_tokenizer": "bpe", "model_type": "mistral",
            "architectures": ["MistralForCausalLM"], "vocab_size": 320, "hidden_size": 48,
            "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 6,
            "num_key_value_heads": 2, "head_dim": None, "max_position_embeddings": 200,
            "rms_norm_eps": 1e-5, "sliding_window": None, "tie_word_embeddings": False,
            "eos_token_id": [2, 319, 17], "rope_theta": 10000.0,
        },
        "dtype": "F16", "pad": False, "logits": [1, 11, 24, 90], "hidden": 24,
        "greedy": [5, 60],
    },
    {
        "name": "int4-g32",
        "about": "int4 file (g 32) with an int4 lm_head; Hugging Face runs its dequantized weights",
        "config": {
            "tl_tokenizer": "byte", "model_type": "llama", "architectures": ["LlamaForCausalLM"],
            "vocab_size": 256, "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "tie_word_embeddings": False,
        },
        "dtype": {"norm": "F32", "": "BF16"}, "int4": 32, "logits": [1, 6, 29, 70],
        "hidden": 29, "greedy": [11, 36],
    },
    {
        "name": "sharded-mixed",
        "about": "three shards and an index, F32 norms, BF16 attention, F16 MLP, tied and stored",
        "config": {
            "tl_tokenizer": "bpe", "model_type": "llama", "architectures": ["LlamaForCausalLM"],
            "vocab_size": 200, "hidden_size": 52, "intermediate_size": 90,
            "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1,
            "max_position_embeddings": 100, "rms_norm_eps": 5e-6, "rope_theta": 30000,
            "tie_word_embeddings": True,
        },
        "dtype": {"norm": "F32", "mlp": "F16", "": "BF16"}, "shards": 3, "store_tied": True,
        "logits": [1, 9, 37, 100], "hidden": 37, "greedy": [13, 50],
    },
]

# The trained model's prompts are text. Its greedy prompts are drawn from the list.
TRAINED_LOGITS = ["I", "In the beginning", "The king of the north saw a ship upon the water, "]
TRAINED_HIDDEN = 16
TRAINED_GREEDY = [
    "And the LORD said unto ",
    "Then came the shepherds out of the valley, and ",
    "Blessed is the man that ",
    "And it came to pass, when the ",
    "Thou shalt not ",
    "The words of the ",
    "In those days there was a ",
    "Wherefore I say unto you, ",
]
TRAINED_GREEDY_KEPT = 2


def generator_for(seed, *words):
    """A PCG64 of its own for each purpose: drawing more for one model moves no other."""
    parts = [seed] + [zlib.crc32(word.encode()) if isinstance(word, str) else word
                      for word in words]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(parts)))


def draw_prompt(rng, vocab, length):
    """Uniform ids, at least four distinct ones where there is room for them."""
    while True:
        ids = rng.integers(0, vocab, size=length).tolist()
        if len(set(ids)) >= min(4, length):
            return ids


def logits_prompts(spec, seed):
    """The prompts of a model. The largest id and 0 stand in each that is long enough, so that
    both ends of the embedding are read."""
    if spec["name"] == TRAINED:
        return [list(text.encode()) for text in TRAINED_LOGITS]
    rng = generator_for(seed, spec["name"], "logits")
    vocab = spec["config"]["vocab_size"]
    prompts = []
    for length in spec["logits"]:
        ids = draw_prompt(rng, vocab, length)
        if length > 8:
            ids[1], ids[-2] = vocab - 1, 0
        prompts.append(ids)
    return prompts


def greedy_candidates(spec, seed, length, count):
    """More prompts than are kept: those with near ties are dropped."""
    rng = generator_for(seed, spec["name"], "greedy", length)
    return [draw_prompt(rng, spec["config"]["vocab_size"], length) for _ in range(count)]


def greedy_wanted(spec, seed):
    """[(candidates, how many of them are kept)]; the first that pass are."""
    if spec["name"] == TRAINED:
        order = generator_for(seed, TRAINED, "greedy").permutation(len(TRAINED_GREEDY))
        return [([list(TRAINED_GREEDY[i].encode()) for i in order], TRAINED_GREEDY_KEPT)]
    return [(greedy_candidates(spec, seed, length, 8), 1) for length in spec["greedy"]]


def specs_of(out):
    """The random models' table and the trained model, whose config.json is its spec and whose
    weights must be the ones that were hashed when they were trained."""
    directory = out / "models" / TRAINED
    digest = hashlib.sha256((directory / "model.safetensors").read_bytes()).hexdigest()
    if digest != TRAINED_SHA256:
        raise SystemExit(f"{directory}/model.safetensors has sha256 {digest}, "
                         f"not {TRAINED_SHA256}")
    config = json.loads((directory / "config.json").read_text())
    trained = {"name": TRAINED, "config": config, "hidden": TRAINED_HIDDEN,
               "about": "trained on the King James Bible, byte by byte"}
    return SPECS + [trained]
