"""The base config of config_cases.py, and what this project expects of the carried-over cases.

carried_cases.json says what those files are; the tables here say what the page makes of them.
"""

import json

import files as f

BASE_ID = "cf-ok-base"
BASE = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "tl_arch": "llama",
    "tl_tokenizer": "byte", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "hidden_act": "silu", "max_position_embeddings": 128, "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0, "rope_scaling": None, "attention_bias": False, "mlp_bias": False,
    "attention_dropout": 0.0, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": None, "pretraining_tp": 1, "use_cache": True, "initializer_range": 0.02,
    "torch_dtype": "bfloat16", "transformers_version": "4.46.0"}
EITHER = "UNSUPPORTED FORMAT"
NO_ROPE = ["rope_theta", "rope_scaling"]


def render(unset=(), **changed):
    top = {**{k: x for k, x in BASE.items() if k not in unset}, **changed}
    return json.dumps(top, ensure_ascii=True)


def base(unset=(), **changed):
    return {"file": f.text(render(unset, **changed))}


def raw(text_or_bytes):
    if isinstance(text_or_bytes, bytes):
        return {"file": f.shortest(text_or_bytes)}
    return {"file": f.text(text_or_bytes) if text_or_bytes else []}


# id: (group, status, subject, twin or None for the base, beyond the schema)
CARRIED = {
    "cf-bad-both-disagree": ("rope_theta", "FORMAT", "rope_theta", base(
        rope_parameters={"rope_theta": 10000.0, "rope_type": "default"}), True),
    "cf-bad-theta-zero": ("number_ranges", "FORMAT", "rope_theta", None, False),
    "cf-bad-theta-string": ("number_types", "FORMAT", "rope_theta", None, False),
    "cf-bad-scaling-linear": ("rope_scaling", "UNSUPPORTED", "linear", None, False),
    "cf-bad-scaling-su": ("rope_scaling", "UNSUPPORTED", "su", None, False),
    "cf-bad-scaling-mrope": ("rope_scaling", "UNSUPPORTED", "mrope", None, False),
    "cf-bad-scaling-proportional": ("rope_scaling", "UNSUPPORTED", "proportional", None, False),
    "cf-bad-scaling-linear-old": ("rope_scaling", "UNSUPPORTED", "linear", None, False),
    "cf-bad-scaling-conflict": ("rope_scaling", "UNSUPPORTED", "llama3", None, False),
    "cf-bad-scaling-string": ("rope_scaling", EITHER, "rope_scaling", None, False),
    "cf-bad-scaling-empty": ("rope_scaling", "UNSUPPORTED", "rope_scaling", None, False),
    "cf-bad-rope-type-number": ("rope_scaling", EITHER, None, None, False),
    "cf-bad-rope-nested": ("rope_scaling", "UNSUPPORTED", "rope_parameters", None, False),
    "cf-bad-partial-rotary": ("rope_scaling", "UNSUPPORTED", "partial_rotary_factor", None, False),
    "cf-bad-partial-rotary-v5": ("rope_scaling", "UNSUPPORTED", "partial_rotary_factor",
                                 base(NO_ROPE, rope_parameters={
                                     "rope_theta": 10000.0, "rope_type": "default",
                                     "partial_rotary_factor": 1.0}), False),
    "cf-bad-kv-not-divisor": ("head_geometry", "FORMAT", "num_key_value_heads", None, True),
    "cf-bad-kv-more": ("head_geometry", "FORMAT", "num_key_value_heads", None, True),
    "cf-bad-kv-zero": ("number_ranges", "FORMAT", "num_key_value_heads", None, False),
    "cf-bad-kv-list": ("number_types", "FORMAT", "num_key_value_heads", None, False),
    "cf-bad-head-dim-odd": ("head_geometry", "FORMAT", "head_dim", "cf-ok-head-dim-equal", False),
    "cf-bad-head-dim-zero": ("head_geometry", "FORMAT", "head_dim", "cf-ok-head-dim-equal", False),
    "cf-bad-missing-hidden_size": ("required_keys", "FORMAT", "hidden_size", None, False),
    "cf-bad-missing-intermediate_size": ("required_keys", "FORMAT", "intermediate_size", None,
                                         False),
    "cf-bad-missing-num_hidden_layers": ("required_keys", "FORMAT", "num_hidden_layers", None,
                                         False),
    "cf-bad-vocab-minus-one": ("number_ranges", "FORMAT", "vocab_size", None, False),
    "cf-bad-hidden-overflow": ("number_ranges", "FORMAT", None, None, False),
    "cf-bad-hidden-int64": ("number_ranges", "FORMAT", None, None, False),
    "cf-bad-hidden-float": ("number_types", "FORMAT", "hidden_size", None, True),
    "cf-bad-hidden-string": ("number_types", "FORMAT", "hidden_size", None, False),
    "cf-bad-layers-zero": ("number_ranges", "FORMAT", "num_hidden_layers", None, False),
    "cf-bad-eps-missing": ("required_keys", "FORMAT", "rms_norm_eps", None, False),
    "cf-bad-eps-negative": ("number_ranges", "FORMAT", "rms_norm_eps", None, False),
    "cf-bad-maxpos-zero": ("number_ranges", "FORMAT", "max_position_embeddings", None, False),
    "cf-bad-eos-empty-list": ("eos_ids", "FORMAT", "eos_token_id", None, False),
    "cf-bad-eos-range": ("eos_ids", "FORMAT", "eos_token_id", None, True),
    "cf-bad-eos-negative": ("eos_ids", "FORMAT", "eos_token_id", None, False),
    "cf-bad-tie-string": ("number_types", "FORMAT", "tie_word_embeddings", None, False),
    "cf-bad-attention-bias": ("biases_and_norms", "UNSUPPORTED", "attention_bias", None, False),
    "cf-bad-mlp-bias": ("biases_and_norms", "UNSUPPORTED", "mlp_bias", None, False),
    "cf-bad-bias-internlm": ("biases_and_norms", "UNSUPPORTED", "bias", None, False),
    "cf-bad-qkv-bias": ("biases_and_norms", "UNSUPPORTED", "qkv_bias", None, False),
    "cf-bad-act-gelu": ("activation", "UNSUPPORTED", "gelu", None, False),
    "cf-bad-act-gelu-tanh": ("activation", "UNSUPPORTED", "gelu_pytorch_tanh", None, False),
    "cf-bad-act-relu": ("activation", "UNSUPPORTED", "relu", None, False),
    "cf-bad-hidden-activation": ("activation", "UNSUPPORTED", "hidden_activation", None, False),
    "cf-bad-sliding-window": ("attention_window", "UNSUPPORTED", "sliding_window", None, False),
    "cf-bad-layer-types": ("attention_window", "UNSUPPORTED", "layer_types", None, False),
    "cf-bad-quant-fp8": ("foreign_keys", "UNSUPPORTED", "quantization_config", None, False),
    "cf-bad-quant-bnb": ("foreign_keys", "UNSUPPORTED", "quantization_config", None, False),
    "cf-bad-compression": ("foreign_keys", "UNSUPPORTED", "compression_config", None, False),
    "cf-bad-family-gemma": ("model_family", "UNSUPPORTED", None, None, False),
    "cf-bad-family-qwen2": ("model_family", "UNSUPPORTED", None, None, False),
    "cf-bad-family-qwen3": ("model_family", "UNSUPPORTED", None, None, False),
    "cf-bad-family-granite": ("model_family", "UNSUPPORTED", None, None, False),
    "cf-bad-family-mixtral": ("model_family", "UNSUPPORTED", None, None, False),
    "cf-bad-family-phi3": ("model_family", "UNSUPPORTED", None, None, False),
    "cf-bad-family-cohere": ("model_family", "UNSUPPORTED", None, None, False),
    "cf-bad-family-gpt2": ("model_family", "UNSUPPORTED", None, None, False),
    "cf-bad-family-mistral-window": ("attention_window", "UNSUPPORTED", "sliding_window",
                                     "cf-ok-family-mistral-plain", False),
    "cf-bad-granite-in-llama": ("foreign_keys", "UNSUPPORTED", "logits_scaling", None, False),
    "cf-bad-softcap": ("foreign_keys", "UNSUPPORTED", "attn_logit_softcapping", None, False),
    "cf-bad-qk-norm": ("biases_and_norms", "UNSUPPORTED", "use_qk_norm", None, False),
    "cf-bad-nope": ("foreign_keys", "UNSUPPORTED", "no_rope_layers", None, False),
    "cf-bad-alibi": ("rope_scaling", "UNSUPPORTED", "position_embedding_type", None, False),
    "cf-bad-arch-seqcls": ("model_family", "UNSUPPORTED", "architectures", None, False),
    "cf-bad-multimodal": ("model_family", EITHER, None, None, False),
    "cf-bad-arch-unknown": ("arch_and_tokenizer", "UNSUPPORTED", "tl_arch", None, False),
    "cf-bad-arch-missing": ("arch_and_tokenizer", EITHER, "tl_arch", None, False),
    "cf-bad-tokenizer-missing": ("arch_and_tokenizer", EITHER, "tl_tokenizer", None, False),
    "cf-bad-empty": ("json_rules", "FORMAT", None, None, False),
    "cf-bad-infinity": ("json_rules", "FORMAT", None, None, False),
    "cf-bad-nan": ("json_rules", "FORMAT", None, None, False),
    "cf-bad-comment": ("json_rules", "FORMAT", None, None, False),
    "cf-bad-bom": ("json_rules", "FORMAT", None, None, False),
    "cf-bad-utf8": ("json_rules", "FORMAT", None, None, False),
    "cf-bad-deep": ("json_rules", "FORMAT", None, "depth-64", True),
    "cf-bad-huge": ("json_rules", "FORMAT", None, "size-1-mib", True),
    "cf-bad-directory": ("json_rules", "IO", None, None, False),
    "cf-bad-missing-file": ("json_rules", "IO", None, None, False),
}
# What an accepted case must have been read as; every other field is the base's.
CARRIED_OK = {
    "cf-ok-base": ("parsed_fields", {"head_dim": 16, "n_kv_heads": 2, "rope_theta": 10000.0,
                                     "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
                                     "eos_token_ids": [2], "max_positions": 128}),
    "cf-ok-v5": ("rope_theta", {"rope_theta": 500000.0}),
    "cf-ok-v5-theta-not-default": ("rope_theta", {"rope_theta": 1000000.0}),
    "cf-ok-v5-no-type": ("rope_theta", {"rope_theta": 10000.0}),
    "cf-ok-v5-null-top": ("rope_theta", {"rope_theta": 1000000.0}),
    "cf-ok-theta-int": ("number_types", {"rope_theta": 10000.0}),
    "cf-ok-theta-missing": ("rope_theta", {"rope_theta": 10000.0}),
    "cf-ok-scaling-default": ("rope_scaling", {}),
    "cf-ok-scaling-default-old": ("rope_scaling", {}),
    "cf-ok-kv-missing": ("parsed_fields", {"n_kv_heads": 4}),
    "cf-ok-kv-one": ("parsed_fields", {"n_kv_heads": 1}),
    "cf-ok-head-dim-equal": ("parsed_fields", {"head_dim": 16}),
    "cf-ok-head-dim-null": ("null_and_unknown", {"head_dim": 16}),
    "cf-ok-maxpos-missing": ("parsed_fields", {"max_positions": 2048}),
    "cf-ok-eos-list": ("eos_ids", {"eos_token_ids": [128001, 128008, 128009]}),
    "cf-ok-eos-null": ("eos_ids", {"eos_token_ids": []}),
    "cf-ok-eos-missing": ("eos_ids", {"eos_token_ids": []}),
    "cf-ok-tie-missing": ("parsed_fields", {"tie_word_embeddings": False}),
    "cf-ok-tie-null": ("null_and_unknown", {"tie_word_embeddings": False}),
    "cf-ok-attention-dropout": ("null_and_unknown", {}),
    "cf-ok-pretraining-tp": ("null_and_unknown", {}),
    "cf-ok-act-swish": ("activation", {}), "cf-ok-act-missing": ("activation", {}),
    "cf-ok-sliding-null": ("attention_window", {}), "cf-ok-quant-null": ("foreign_keys", {}),
    "cf-ok-family-mistral-plain": ("model_family", {}),
    "cf-ok-unknown-keys": ("null_and_unknown", {}), "cf-ok-dtype-new": ("null_and_unknown", {}),
    "cf-ok-trailing-newline": ("json_rules", {}),
    "cf-ok-bigram": ("bigram_rows", {"arch": "bigram", "max_positions": 2048,
                                     "eos_token_ids": []}),
    "cf-ok-locale": ("parsed_fields", {"rope_theta": 10000.0, "rms_norm_eps": 1e-5}),
}
FLAG_OF_GROUP = {
    "json_rules": "json", "arch_and_tokenizer": "family", "model_family": "family",
    "required_keys": "default-for-missing", "number_types": "number-type",
    "number_ranges": "number-range", "head_geometry": "head-geometry", "rope_theta": "theta-place",
    "rope_scaling": "rope-scaling", "attention_window": "window", "biases_and_norms": "bias",
    "activation": "activation", "foreign_keys": "foreign-key", "eos_ids": "eos",
    "null_and_unknown": "null", "bigram_rows": "bigram", "parsed_fields": "parsed"}
