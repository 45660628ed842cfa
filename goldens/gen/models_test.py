#!/usr/bin/env python3
"""Tests of the refusals: each kind of model or prompt that proves nothing must be turned away.

    python3 models_test.py        numpy only, a second or two; no golden is read or written
"""
import tempfile
import unittest
from pathlib import Path

import numpy as np

import models_file as mf
import models_forward as fw
from models import complaint, draw_weights, measure, stale, stored_tensors
from models_spec import SPECS, draw_prompt, generator_for, logits_prompts

SPEC = next(spec for spec in SPECS if spec["name"] == "gqa-f32")
C = fw.shape_of(SPEC["config"])
PROMPTS = [ids for ids in logits_prompts(SPEC, 1) if len(ids) <= 33]


def good():
    return draw_weights(C, generator_for(1, SPEC["name"], "weights", 0))


class Refusals(unittest.TestCase):
    def test_a_good_drawing_is_kept(self):
        self.assertIsNone(complaint(measure(C, good(), PROMPTS)))
        self.assertIsNone(stale(C, good(), SPEC, 1))

    def test_default_scale_hides_the_bugs(self):
        """Hugging Face draws with 0.02 and norms of one: RoPE then hardly counts."""
        weights = {name: np.float32(0.02) * generator_for(1, name).standard_normal(
            w.shape, dtype=np.float32) if w.ndim == 2 else np.ones_like(w)
            for name, w in good().items()}
        self.assertRegex(complaint(measure(C, weights, PROMPTS)), "bounds only")

    def test_sharp_attention_amplifies_f16(self):
        weights = {name: w * np.float32(8 if "q_proj" in name or "k_proj" in name else 1)
                   for name, w in good().items()}
        self.assertRegex(complaint(measure(C, weights, PROMPTS)), "^f16-kv")

    def test_each_bug_that_moves_nothing_is_named(self):
        kept = measure(C, good(), PROMPTS)
        for bug in fw.MUTANTS:
            self.assertRegex(complaint({**kept, bug: 0.004}), f"^{bug} moves by 4.00 bounds only")
            self.assertRegex(complaint({**kept, bug: float("nan")}), f"^{bug} ")
        self.assertRegex(complaint({**kept, "f16-kv": float("nan")}), "^f16-kv ")

    def test_equal_tokens_show_no_rope(self):
        """Why prompts have four distinct ids: with equal ones the order of keys does not count."""
        logits = fw.forward(C, good(), [7] * 12)[1]
        for bug in ("s15-k-slab-empty", "s20-rope-reversed"):
            wrong = fw.forward(C, good(), [7] * 12, bug=bug)[1]
            self.assertLess(fw.moved(wrong, logits), 1e-12)
        self.assertIsNotNone(complaint(measure(C, good(), [[7] * 12])))

    def test_a_stream_of_one_token_is_stale(self):
        weights = good()
        weights["lm_head.weight"][1:] = 0
        self.assertRegex(stale(C, weights, SPEC, 1), "distinct ids only")

    def test_prompts_have_distinct_ids(self):
        rng = generator_for(1, "prompts")
        for length in range(1, 20):
            self.assertGreaterEqual(len(set(draw_prompt(rng, 4, length))), min(4, length))


class Files(unittest.TestCase):
    def test_what_is_written_reads_back(self):
        for spec in SPECS:
            c = fw.shape_of(spec["config"])
            tensors = stored_tensors(spec, draw_weights(c, generator_for(1, spec["name"])))
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.safetensors"
                mf.write_safetensors(path, tensors, {"format": "pt"}, spec.get("pad", True))
                found, _ = mf.read_safetensors(path)
            self.assertEqual(list(found), [name for name, _, _ in tensors])
            for name, dtype, values in tensors:
                self.assertEqual(found[name][0], dtype)
                self.assertEqual(mf.encode(dtype, found[name][1]), mf.encode(dtype, values))

    def test_bf16_rounds_to_even(self):
        halves = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0xBF7FFFFF], dtype=np.uint32)
        self.assertEqual(mf.bf16_bits(halves.view(np.float32)).tolist(),
                         [0x3F80, 0x3F82, 0x3F81, 0xBF80])

    def test_int4_keeps_within_half_a_scale(self):
        weight = generator_for(1, "int4").standard_normal((6, 64), dtype=np.float32)
        weight[0, :32] = 0
        q, scales = mf.quantize_int4(weight, 32)
        back = mf.dequantize_int4(mf.pack_int4(q), scales)
        limit = np.repeat(scales.astype(np.float32), 32, axis=1) * 0.5001
        self.assertTrue((np.abs(back - weight) <= limit).all())
        self.assertEqual(mf.pack_int4(np.array([[1, -2]], dtype=np.int8)).tolist(), [[0xE1]])


if __name__ == "__main__":
    unittest.main()
