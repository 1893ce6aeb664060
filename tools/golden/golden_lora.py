#!/usr/bin/env python3
"""Golden files of low-rank adapters, made with the PEFT library (tests/golden/lora). Pure functions of the seeds here.

<name>/: adapter_config.json and adapter_model.safetensors as PEFT writes them, with A and B random, and
golden.safetensors with, in fp32 of model <base> (tests/golden/models, tests/golden/moe/models) and these adapters,
  tokens, cu_seqlens      packed input sequences
  logprobs, weights       fp64 log-softmax of the fp32 logits for every next token; weights of the loss below
  base                    the same log-probs without the adapters
  grad/<tensor>           gradient of sum weights * logprobs for every adapter, without "base_model.model."
  merged/<tensor>         W + scale B A of the first target of the first layer, by PEFT
base.txt names the folder of the base.

Needs torch, transformers 5, peft, safetensors, numpy:  tools/golden/golden_lora.py [name ...]
Made with peft 0.21.2, transformers 5.24.0, torch 2.15.0
"""
import json
import os
import shutil
import sys
import zlib

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file

import golden

ROOT = os.path.join(golden.ROOT, "lora")
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
CASES = {
    "qwen3-all": ("models/qwen3-default", dict(r=4, lora_alpha=8, target_modules=ATTENTION + [
        "gate_proj", "up_proj", "down_proj"])),
    "qwen2-qv-rslora": ("models/qwen2-default", dict(r=3, lora_alpha=5, use_rslora=True,
                                                      target_modules=["q_proj", "v_proj"])),
    "llama-mlp": ("models/llama-default", dict(r=8, lora_alpha=4, target_modules=["o_proj", "gate_proj", "down_proj"])),
    "qwen3-moe-attention": ("moe/models/qwen3-moe-default", dict(r=4, lora_alpha=8, target_modules=ATTENTION)),
}


def target_logprobs(model, sequences):
    rows = []
    for s in sequences:
        logits = golden.logits_of(model, s)[:-1].double()
        rows.append(torch.log_softmax(logits, -1).gather(1, torch.tensor(s[1:])[:, None])[:, 0])
    return torch.cat(rows)


def make(name):
    base, keys = CASES[name]
    folder = os.path.join(ROOT, name)
    shutil.rmtree(folder, ignore_errors=True)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    options = dict(experts_implementation="eager") if "moe" in base else {}
    plain, _ = golden.load(os.path.join(golden.ROOT, base), **options)
    sequences = golden.random_sequences(plain.config.vocab_size, rng)
    with torch.no_grad():
        without = target_logprobs(plain.eval(), sequences)
    model = get_peft_model(plain, LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **keys)).eval()
    trained = sorted((n, p) for n, p in model.named_parameters() if p.requires_grad)
    with torch.no_grad():
        for n, p in trained:
            p.copy_(torch.from_numpy(rng.standard_normal(p.shape) * (0.3 if "lora_A" in n else 0.2)).float())
    logprobs = target_logprobs(model, sequences)
    weights = torch.from_numpy(rng.standard_normal(len(logprobs)))
    (weights * logprobs).sum().backward()
    out = {"grad/" + n.replace("base_model.model.", "", 1).replace(".default", ""): p.grad.clone()
           for n, p in trained}
    model.save_pretrained(folder)
    settings = json.load(open(os.path.join(folder, "adapter_config.json")))
    settings["base_model_name_or_path"] = base
    settings["target_modules"] = sorted(settings["target_modules"])
    golden.write_json(os.path.join(folder, "adapter_config.json"), settings)
    readme = os.path.join(folder, "README.md")
    if os.path.exists(readme):
        os.remove(readme)
    merged = {n: p for n, p in model.merge_and_unload().named_parameters()}
    first = sorted(n for n in merged if ".0." in n and n.split(".")[-2] in keys["target_modules"])[0]
    out.update({"merged/" + first: merged[first].detach().clone()},
               tokens=torch.tensor(sum(sequences, []), dtype=torch.int32),
               cu_seqlens=torch.tensor(np.cumsum([0, *golden.LENGTHS]), dtype=torch.int32),
               logprobs=logprobs.detach(), weights=weights, base=without)
    save_file({n: t.contiguous() for n, t in out.items()}, os.path.join(folder, "golden.safetensors"))
    with open(os.path.join(folder, "base.txt"), "w") as f:
        f.write(base + "\n")
    print(f"{name}: {len(trained)} adapters, log-probs differ from the base by {(logprobs - without).abs().max():.3f}")


def main():
    for name in sys.argv[1:] or CASES:
        make(name)


if __name__ == "__main__":
    main()
