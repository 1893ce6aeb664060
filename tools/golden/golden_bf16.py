#!/usr/bin/env python3
"""How far transformers in bf16 is from fp64: tests/golden/bf16_distance.json, for every folder of tests/golden/models and
tests/golden/moe/models.

The distance is the root mean square over the log-probs of all next tokens of 512 sequences of 64 tokens (32,256 numbers:
the largest of a few dozen is noise). Token i of sequence s is (((64 s + i) 2654435761 + 12345) mod 2^32 >> 16) mod vocabulary.
"gradient ..." is the distance of the gradient of all parameters, as a share of its norm, for the sum of w log-prob over the
first 128 sequences: w of target i is ((2246822519 i + 1) mod 2^32 >> 16) / 32768 - 1.
"sdpa" is the attention that transformers takes unless told otherwise, "eager" its plain one; fp64 has no rounding to speak of.

Needs torch, transformers 5:  tools/golden/golden_bf16.py [--device cuda] [--print] [name ...]
(--print: leave the file alone)
"""
import argparse
import json
import os

import torch
from transformers import AutoConfig, AutoModelForCausalLM

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden")
SEQUENCES, LENGTH, GRADIENT_SEQUENCES = 512, 64, 128


def tokens(vocab):
    i = torch.arange(SEQUENCES * LENGTH, dtype=torch.int64)
    return (((i * 2654435761 + 12345) % 2**32 >> 16) % vocab).view(SEQUENCES, LENGTH)


def load(folder, dtype, attention, device):
    # Grouped products, the default for experts, take neither fp64 nor rows that are no multiple of 16 bytes.
    width = getattr(AutoConfig.from_pretrained(folder), "moe_intermediate_size", 8)
    experts = "eager" if dtype == torch.float64 or width % 8 else None
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention,
                                                experts_implementation=experts).to(device).eval()


def logprobs(model, ids):
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1].double()
    return torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None]).squeeze(-1)


def measure(folder, dtype, attention, device):
    """Log-probs of all targets, and the gradient of all parameters."""
    model = load(folder, dtype, attention, device)
    ids = tokens(model.config.vocab_size).to(device)
    with torch.no_grad():
        values = logprobs(model, ids).cpu()
    few = logprobs(model, ids[:GRADIENT_SEQUENCES])
    i = torch.arange(few.numel(), dtype=torch.int64, device=device)
    weights = ((i * 2246822519 + 1) % 2**32 >> 16).double() / 32768 - 1
    (weights * few.flatten()).sum().backward()
    return values, torch.cat([p.grad.double().flatten().cpu() for p in model.parameters()])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--print", action="store_true")
    parser.add_argument("names", nargs="*", help="folders to measure; all others keep their numbers")
    options = parser.parse_args()
    path = os.path.join(GOLDEN, "bf16_distance.json")
    with open(path) as f:
        out = json.load(f)
    folders = {name: os.path.join(GOLDEN, kind, name)
               for kind in ("models", "moe/models") for name in sorted(os.listdir(os.path.join(GOLDEN, kind)))}
    for name in options.names or folders:
        folder = folders[name]
        exact, exact_gradient = measure(folder, torch.float64, "eager", options.device)
        out[name] = {}
        for attention in ("eager", "sdpa"):
            values, gradient = measure(folder, torch.bfloat16, attention, options.device)
            error = (values - exact).square().mean().sqrt().item()
            share = ((gradient - exact_gradient).norm() / exact_gradient.norm()).item()
            out[name][attention] = float(f"{error:.4g}")
            out[name]["gradient " + attention] = float(f"{share:.4g}")
        print(f"{name:28s}", "  ".join(f"{k} {v:.5f}" for k, v in sorted(out[name].items())), flush=True)
    if not options.print:
        with open(path, "w") as f:
            json.dump(out, f, indent=1)
            f.write("\n")


main()
