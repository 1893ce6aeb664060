#!/usr/bin/env python3
"""How far transformers in bf16 is from fp64: tests/golden/bf16_distance.json, for every folder of tests/golden/models.

The distance is the root mean square over the log-probs of all next tokens of 512 sequences of 64 tokens (32,256 numbers:
the largest of a few dozen is noise). Token i of sequence s is (((64 s + i) 2654435761 + 12345) mod 2^32 >> 16) mod vocabulary.
"sdpa" is the attention that transformers takes unless told otherwise, "eager" its plain one; fp64 has no rounding to speak of.

Needs torch, transformers 5:  tools/golden_bf16.py [--device cuda] [--print]   (--print: leave the file alone)
"""
import argparse
import json
import os

import torch
from transformers import AutoModelForCausalLM

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden")
SEQUENCES, LENGTH = 512, 64


def tokens(vocab):
    i = torch.arange(SEQUENCES * LENGTH, dtype=torch.int64)
    return (((i * 2654435761 + 12345) % 2**32 >> 16) % vocab).view(SEQUENCES, LENGTH)


def logprobs(folder, dtype, attention, device):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention).to(device).eval()
    ids = tokens(model.config.vocab_size).to(device)
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1].double()
    return torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None]).squeeze(-1).cpu()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--print", action="store_true")
    options = parser.parse_args()
    out = {}
    for name in sorted(os.listdir(os.path.join(GOLDEN, "models"))):
        folder = os.path.join(GOLDEN, "models", name)
        exact = logprobs(folder, torch.float64, "eager", options.device)
        out[name] = {}
        for attention in ("eager", "sdpa"):
            error = logprobs(folder, torch.bfloat16, attention, options.device) - exact
            out[name][attention] = float(f"{error.square().mean().sqrt().item():.4g}")
        print(f"{name:28s} eager {out[name]['eager']:.5f}  sdpa {out[name]['sdpa']:.5f}", flush=True)
    if not options.print:
        with open(os.path.join(GOLDEN, "bf16_distance.json"), "w") as f:
            json.dump(out, f, indent=1)
            f.write("\n")


main()
