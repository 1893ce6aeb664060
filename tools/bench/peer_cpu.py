#!/usr/bin/env python3
"""Peer of `make bench` on the CPU: the same model in PyTorch / transformers, same tokens, same threads.

usage: peer_cpu.py MODEL_DIR THREADS   prints one JSON line: seconds of a training step (forward, backward, AdamW) over
16 sequences of 256 tokens, and of decoding 128 tokens for 1 and for 16 prompts of 64 tokens. Best of three runs.
"""
import json
import sys
import time

import torch
from transformers import AutoModelForCausalLM


def best(function, runs=3):
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def main():
    torch.set_num_threads(int(sys.argv[2]))
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
    vocab = model.config.vocab_size
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    tokens = torch.randint(10, vocab, (16, 256))

    def step():
        optimizer.zero_grad()
        logits = model(tokens, use_cache=False).logits
        logprob = torch.log_softmax(logits[:, :-1].float(), -1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
        (-logprob[:, 63:].mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    step()
    result = {"train_step_s": best(step)}
    for batch in (1, 16):
        prompt = torch.randint(10, vocab, (batch, 64))
        with torch.no_grad():
            def decode():
                model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=128, min_new_tokens=128,
                               do_sample=True, top_k=0, eos_token_id=None, pad_token_id=0)
            decode()
            result[f"decode_batch_{batch}_s"] = best(decode)
    print(json.dumps(result))


main()
