#!/usr/bin/env python3
"""The updates of a replayed step once more from outside, in fp64 by torch autograd: loss, gradients of every update, and the
exported weights or adapters (lora.path). Needs torch, safetensors; Qwen3; `train --replay ROLLOUTS --dump-gradients DUMP` in fp64.
usage: tools/golden/outside.py RUN_DIR DUMP ROLLOUTS EXPORTED     prints the largest errors; 1 above 1e-9 (make test-outside)"""

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
a, o, methods.LMAX = config["algorithm"], config["optimizer"], config["rollout"]["max_new_tokens"]
a |= {"loss": "reinforce", "tis_cap": 0.0} if (sft := a["name"] == "sft") else {}
read = lambda *file: {n.removeprefix("base_model.model."): t.double() for n, t in load_file(os.path.join(*file)).items()}
folder, lora, teacher = config["model"]["path"], config["lora"]["path"], config["roles"].get("teacher", {}).get("path")
base, lines = read(folder, "model.safetensors"), [json.loads(line) for line in open(rollouts)]
trained = {n: t.requires_grad_() for n, t in (read(lora, "adapter_model.safetensors") if lora else base).items()}
weights = lambda: golden.adapted(base, trained, lora) if lora else trained
lines.sort(key=lambda r: (r["group"], r["sample"]))
def score(path, tensors):
    golden.REPLAY = json.load(open(os.path.join(path, "config.json")))
    with torch.no_grad():
        return [golden.response_stats(tensors, r)[0].tolist() for r in lines]

taught, first = teacher and score(teacher, read(teacher, "model.safetensors")), score(folder, weights())
for r, now in zip(lines, first):  # a token of older weights: its ratio starts at the weights that the step begins with
    r |= {"logprobs": r.get("logprobs") or now, "ref_logprobs": r.get("ref_logprobs") or now, "excluded": r["reward"] is None}
    versions = r.get("policy_versions") or [[r.get("policy_version", [r["step"] - 1])[0], len(now)]]
    older = [a["tis_cap"] and v != r["step"] - 1 for v, n in versions for _ in range(n)]
    r["old"] = [x if late else p for x, p, late in zip(now, r["logprobs"], older)]
    r["parts"], cut = r.get("reward_parts", {}), a["mask_truncated"] and r["finish_reason"] == "length"
    r["mask"] = [0 if cut else m for m in r["response_mask"]]
in_reward = a["kl_coef"] if a["kl_in"] == "reward" else 0.0
by_token = in_reward if a["advantage"] == "reinforce++" else 0.0  # of the others a replayed reward has all in it
parts = {f["name"]: f["weight"] for f in config["reward"].get("functions", [])}
options = {"std": a["advantage_std"], "eps": a["advantage_eps"], "gamma": a["gamma"], "kl_coef": by_token, "weights": parts,
           "kl_estimator": a["kl_estimator"], "single_group": a["single_group"] if parts else "zero"}
own, groups = [r["logprobs"] for r in lines], [[r for r in lines if r["group"] == g] for g in sorted({r["group"] for r in lines})]
for r in lines:
    r["reward"] = (r["reward"] or 0.0) + (by_token * sum(methods.k_terms(r, options)) if by_token else 0.0)
for r, one, said in zip(lines, sum(methods.advantages(a["advantage"], groups, options), []), taught or own):
    r["tokens"] = [1.0 if sft else x - a["teacher_coef"] * (p - q)
                   for x, p, q in zip(one["tokens"] if one else r["mask"], r["logprobs"], said)]
    d = torch.tensor([x - p for x, p, m in zip(r["old"], r["logprobs"], r["mask"]) if m]).clamp(-20, 20)
    far = len(d) and (a["reject_mean_k3"] and (d.expm1() - d).mean() > a["reject_mean_k3"] or d.min().exp() < a["reject_token_below"])
    r["mask"] = [0] * len(r["mask"]) if not (sft or one) or far else r["mask"]

worst, losses, moments = 0.0, [], {n: (torch.zeros_like(t), torch.zeros_like(t)) for n, t in trained.items()}
size = -(-len(lines) // len(dumps := sorted(os.listdir(dump))))
for step, file in enumerate(dumps, 1):
    part = lines[(step - 1) * size:step * size]
    joined = lambda key: [x for r in part for x in r[key]]
    batch = {"lengths": [len(r["mask"]) for r in part], "mask": joined("mask"), "advantage": joined("tokens"),
             "old_logprob": joined("old"), "sampled_logprob": joined("logprobs")}
    lp, entropy = (torch.cat(of) for of in zip(*[golden.response_stats(weights(), r) for r in part]))
    kl = methods.kl_value(a["kl_estimator"], lp - torch.tensor(joined("ref_logprobs")), a["ratio_clamp"])
    terms = (methods.importance(batch, a) * methods.policy_term(batch, a, lp) + (a["kl_coef"] - in_reward) * kl
             - a["entropy_coef"] * entropy)
    losses.append(loss := methods.aggregate(batch, terms, a["aggregation"]))
    grads = dict(zip(trained, torch.autograd.grad(loss, list(trained.values()))))
    said, norm = read(dump, file), torch.sqrt(sum((g * g).sum() for g in grads.values())).item()
    worst = max([worst] + [((said[n] - g).norm() / g.norm().clamp(min=1e-12)).item() for n, g in grads.items()])
    clip = min(1.0, (o["grad_clip"] or float("inf")) / (norm + 1e-6))
    for n, t in trained.items():
        m, v = (b * x + (1 - b) * y for b, x, y in zip(o["betas"], moments[n], (grads[n] * clip, (grads[n] * clip) ** 2)))
        moments[n], v = (m, v), (v / (1 - o["betas"][1] ** step)).sqrt() + o["eps"]
        t.data -= o["lr"] * (m / (1 - o["betas"][0] ** step) / v + o["weight_decay"] * (t.dim() > 1) * t.data)
last = max(((read(exported)[n] - t).norm() / t.norm()).item() for n, t in trained.items())
said = json.loads(open(os.path.join(run, "metrics.jsonl")).readline())["train/loss" if sft else "actor/loss"]
off = abs(sum(losses).item() / len(losses) - said)
print(f"{len(dumps)} updates, loss {said:.6f} off by {off:.1e}, gradients {worst:.1e}, weights {last:.1e}")
sys.exit(max(off, worst, last) > 1e-9)
