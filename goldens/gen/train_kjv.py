#!/usr/bin/env python3
"""Train the one golden model whose text can be read: models/kjv, bytes of the King James Bible.

The text comes from the Debian packages bible-kjv and bible-kjv-text (the translation of 1611,
whose copyright has expired; the program that prints it is under the GPL and is not copied here).
Training repeats its bytes on one machine only, so `make goldens` never runs this script: the
weights it wrote are an input of the generators, whose hash models_spec.py knows.

    apt-get install bible-kjv bible-kjv-text
    python3 train_kjv.py --out ../models/kjv [--steps 4500] [--threads 2]
"""
import argparse
import hashlib
import math
import re
import subprocess
import time
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from models_file import write_json, write_safetensors

TEXT_SHA256 = "b5c4940bcfeee072c0935b5200d0f9d88a00a0199cb0961d16133458fcdfae5d"
SEED = 1611
CONTEXT = 256
BATCH = 16
PEAK_LR = 3e-3
SHAPE = dict(
    vocab_size=256,
    hidden_size=112,
    intermediate_size=208,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=28,
    max_position_embeddings=512,
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
    hidden_act="silu",
)


def read_text():
    """The whole Bible, one verse a line, the verse numbers cut off."""
    out = subprocess.run(["bible", "-f", "Genesis 1:1-Revelation 22:21"], check=True,
                         stdout=subprocess.PIPE).stdout.decode("ascii")
    verses = [re.sub(r"^\S+?\d+:\d+ ", "", line) for line in out.splitlines()]
    text = ("\n".join(verses) + "\n").encode("ascii")
    found = hashlib.sha256(text).hexdigest()
    if found != TEXT_SHA256:
        raise SystemExit(f"the text's sha256 is {found}, not {TEXT_SHA256}: another edition")
    return text


def learning_rate(step, steps):
    """A short warm-up, then half a cosine down to a fiftieth of the peak."""
    warm = 100
    if step < warm:
        return PEAK_LR * (step + 1) / warm
    done = (step - warm) / max(1, steps - warm)
    return PEAK_LR * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))


def validation_loss(model, held):
    """Nats per byte over the held-out tail, in windows of CONTEXT."""
    model.eval()
    with torch.no_grad():
        rows = held[: len(held) // CONTEXT * CONTEXT].view(-1, CONTEXT)[:64]
        loss = model(input_ids=rows, labels=rows).loss.item()
    model.train()
    return loss


def sample(model, prompt, count):
    """A greedy continuation, only to be looked at in the log."""
    ids = torch.tensor([list(prompt)])
    with torch.no_grad():
        for _ in range(count):
            step = model(input_ids=ids[:, -CONTEXT:]).logits[0, -1].argmax()
            ids = torch.cat([ids, step.view(1, 1)], dim=1)
    return bytes(ids[0].tolist()).decode("ascii", "replace")


def train(text, steps):
    torch.manual_seed(SEED)
    rng = np.random.Generator(np.random.PCG64(SEED))
    data = torch.from_numpy(np.frombuffer(text, dtype=np.uint8).astype(np.int64))
    cut = len(data) * 99 // 100
    fit, held = data[:cut], data[cut:]
    model = LlamaForCausalLM(LlamaConfig(**SHAPE, rope_parameters={
        "rope_type": "default", "rope_theta": 10000.0}, attn_implementation="sdpa"))
    size = sum(p.numel() for p in model.parameters())
    print(f"{size} parameters, {len(text)} bytes of text, {steps} steps", flush=True)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    opt = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.05},
                             {"params": vectors, "weight_decay": 0.0}], betas=(0.9, 0.98))
    begun = time.time()
    for step in range(steps):
        for part in opt.param_groups:
            part["lr"] = learning_rate(step, steps)
        at = rng.integers(0, len(fit) - CONTEXT, size=BATCH)
        rows = torch.stack([fit[i:i + CONTEXT] for i in at.tolist()])
        loss = model(input_ids=rows, labels=rows).loss
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 100 == 99 or step + 1 == steps:
            held_loss = validation_loss(model, held)
            print(f"step {step + 1} loss {loss.item():.4f} held {held_loss:.4f} "
                  f"{time.time() - begun:.0f} s", flush=True)
        if step % 500 == 499:
            print("  " + repr(sample(model, b"And the LORD said unto ", 120)), flush=True)
    return model, held_loss


def save(model, out, held_loss, steps):
    """config.json as a user of the engine would write it, and the weights rounded to BF16."""
    out.mkdir(parents=True, exist_ok=True)
    config = {"tl_arch": "llama", "tl_tokenizer": "byte", "architectures": ["LlamaForCausalLM"],
              "model_type": "llama", **SHAPE,
              "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
    write_json(out / "config.json", config)
    tensors = [(name, "BF16", value.detach().float().numpy())
               for name, value in model.state_dict().items() if name != "lm_head.weight"]
    meta = {"format": "pt", "text": "King James Bible (1611, public domain)",
            "text_sha256": TEXT_SHA256, "held_out_nats_per_byte": f"{held_loss:.4f}",
            "steps": str(steps)}
    write_safetensors(out / "model.safetensors", tensors, meta)
    digest = hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()
    print(f"model.safetensors sha256 {digest}")


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--out", type=Path, required=True)
    ap.add_argument("--steps", type=int, default=4500)
    ap.add_argument("--threads", type=int, default=2)
    args = ap.parse_args()
    torch.set_num_threads(args.threads)
    text = read_text()
    model, held_loss = train(text, args.steps)
    save(model, args.out, held_loss, args.steps)


if __name__ == "__main__":
    main()
