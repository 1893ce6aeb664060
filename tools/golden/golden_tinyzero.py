#!/usr/bin/env python3
"""Writes the model in tests/golden/tinyzero: the first layer of the published TinyZero Llama (random weights,
written by transformers 4.43 in bf16) with embedding, norm and head, and the log-probs that transformers gives for a few
sequences in fp32. Its tokenizer files, one id per character, are written by hand.

usage: golden_tinyzero.py TINYZERO_DIR      needs torch, transformers, safetensors
"""

import json
import os
import random
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

OUT = os.path.join(os.path.dirname(__file__), "..", "..", "tests", "golden", "tinyzero")


def main():
    source = sys.argv[1]
    with open(os.path.join(source, "config.json")) as f:
        config = json.load(f) | {"num_hidden_layers": 1}
    with open(os.path.join(OUT, "config.json"), "w") as f:
        f.write(json.dumps(config, indent=2) + "\n")
    shutil.copyfile(os.path.join(source, "generation_config.json"), os.path.join(OUT, "generation_config.json"))
    tensors = load_file(os.path.join(source, "model.safetensors"))
    kept = {k: v for k, v in tensors.items() if not k.startswith("model.layers.") or k.startswith("model.layers.0.")}
    save_file(kept, os.path.join(OUT, "model.safetensors"), metadata={"format": "pt"})

    model = AutoModelForCausalLM.from_pretrained(OUT, dtype=torch.float32)
    generator = random.Random(1)
    with open(os.path.join(OUT, "scores.jsonl"), "w") as f:
        for length in (2, 5, 30, 120):
            tokens = [generator.randrange(config["vocab_size"]) for _ in range(length)]
            with torch.no_grad():
                logprobs = torch.log_softmax(model(torch.tensor([tokens])).logits[0].double(), -1)
            picked = logprobs[:-1].gather(1, torch.tensor(tokens)[1:, None])[:, 0]
            f.write(json.dumps({"tokens": tokens, "logprobs": [round(x, 8) for x in picked.tolist()]}) + "\n")


if __name__ == "__main__":
    main()
