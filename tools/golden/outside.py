#!/usr/bin/env python3
"""The updates of a replayed step once more from outside, in fp64 by torch autograd: gradients of every update and the
exported weights or adapters (lora.path). Needs torch, safetensors; Qwen3; `train --replay ROLLOUTS --dump-gradients DUMP` in fp64.
usage: tools/golden/outside.py RUN_DIR DUMP ROLLOUTS EXPORTED     prints the largest relative errors; 1 above 1e-9"""

import json
import os
import sys
import tomllib

import torch
from safetensors.torch import load_file

import golden
import golden_methods as methods

torch.set_default_dtype(torch.float64)
run, dump, rollouts, exported = sys.argv[1:]
config = tomllib.load(open(os.path.join(run, "config.toml"), "rb"))
a, o = config["algorithm"], config["optimizer"]
methods.LMAX = config["rollout"]["max_new_tokens"]
golden.REPLAY = json.load(open(os.path.join(config["model"]["path"], "config.json")))
read = lambda *file: {n.removeprefix("base_model.model."): t.double() for n, t in load_file(os.path.join(*file)).items()}
base, lora = read(config["model"]["path"], "model.safetensors"), config["lora"]["path"]
trained = {n: t.requires_grad_() for n, t in (read(lora, "adapter_model.safetensors") if lora else base).items()}
weights = lambda: golden.adapted(base, trained, lora) if lora else trained
lines = sorted((json.loads(line) for line in open(rollouts)), key=lambda r: (r["group"], r["sample"]))

for r in lines:  # a token of older weights: its ratio starts at the weights that the step begins with
    r["mask"], r["parts"], r["excluded"] = r["response_mask"], r.get("reward_parts", {}), False
    older = r.get("policy_version", [r["step"] - 1])[0] != r["step"] - 1
    with torch.no_grad():
        r["old"] = golden.response_stats(weights(), r)[0].tolist() if older and a["tis_cap"] else r["logprobs"]
in_reward = a["kl_coef"] if a["kl_in"] == "reward" else 0.0
options = methods.STEP | {"std": a["advantage_std"], "eps": a["advantage_eps"], "gamma": a["gamma"],
                          "kl_coef": in_reward, "kl_estimator": a["kl_estimator"], "single_group": a["single_group"]}
groups = [[r for r in lines if r["group"] == g] for g in sorted({r["group"] for r in lines})]
for r in lines:  # a replayed reward has the KL in it
    r["reward"] += in_reward * sum(methods.k_terms(r, options)) if in_reward else 0.0
for group, found in zip(groups, methods.advantages(a["advantage"], groups, options)):
    for r, one in zip(group, found):
        r["tokens"] = one["tokens"] if one else [0.0] * len(r["mask"])
        if "teacher" in config["roles"] and "path" in config["roles"].get("teacher", {}):
            r["tokens"] = [x - a["teacher_coef"] * (p - q) for x, p, q in
                           zip(r["tokens"], r["logprobs"], r["teacher_logprobs"])]
for r in lines:  # responses that are rejected
    d = torch.tensor(r["old"]) - torch.tensor(r["logprobs"])
    d = d[torch.tensor(r["mask"], dtype=torch.bool)].clamp(-20, 20)
    far = len(d) and (a["reject_mean_k3"] and (d.expm1() - d).mean() > a["reject_mean_k3"] or d.min().exp() < a["reject_token_below"])
    r["mask"] = [0] * len(r["mask"]) if far else r["mask"]

worst, moments = 0.0, {n: (torch.zeros_like(t), torch.zeros_like(t)) for n, t in trained.items()}
dumps = sorted(os.listdir(dump))
size = -(-len(lines) // len(dumps))
for step, file in enumerate(dumps, 1):
    part = lines[(step - 1) * size:step * size]
    joined = lambda key: [x for r in part for x in r[key]]
    batch = {"lengths": [len(r["mask"]) for r in part], "mask": joined("mask"), "advantage": joined("tokens"),
             "old_logprob": joined("old"), "sampled_logprob": joined("logprobs")}
    stats = [golden.response_stats(weights(), r) for r in part]
    lp, entropy = (torch.cat([s[i] for s in stats]) for i in (0, 1))
    loss = methods.aggregate(batch, methods.importance(batch, a) * methods.policy_term(batch, a, lp), a["aggregation"])
    if a["kl_coef"] and not in_reward:
        d = lp - torch.tensor(joined("ref_logprobs"))
        loss = loss + a["kl_coef"] * methods.aggregate(batch, methods.kl_value(a["kl_estimator"], d, a["ratio_clamp"]), a["aggregation"])
    loss = loss - a["entropy_coef"] * methods.aggregate(batch, entropy, a["aggregation"])
    grads = dict(zip(trained, torch.autograd.grad(loss, list(trained.values()))))
    for n, g in read(dump, file).items():
        worst = max(worst, ((g - grads[n]).norm() / grads[n].norm().clamp(min=1e-12)).item())
    norm = torch.sqrt(sum((g * g).sum() for g in grads.values()))
    clip = min(1.0, o["grad_clip"] / (norm.item() + 1e-6)) if o["grad_clip"] else 1.0
    for n, t in trained.items():
        m, v = (b * x + (1 - b) * y for b, x, y in zip(o["betas"], moments[n], (grads[n] * clip, (grads[n] * clip) ** 2)))
        moments[n], decay = (m, v), o["weight_decay"] if t.dim() > 1 else 0.0
        hat = m / (1 - o["betas"][0] ** step), v / (1 - o["betas"][1] ** step)
        with torch.no_grad():
            t -= o["lr"] * (hat[0] / (hat[1].sqrt() + o["eps"]) + decay * t)
last = max(((read(exported)[n] - t).norm() / t.norm()).item() for n, t in trained.items())
print(f"{a['name']}: {len(dumps)} updates, loss {loss.item():.6f}, gradients {worst:.1e}, weights {last:.1e}")
sys.exit(worst > 1e-9 or last > 1e-9)
