#!/usr/bin/env python3
"""Writes tests/golden/rl/{losses,advantages}.json: GRPO and SFT losses with their per-token gradients by
torch autograd in fp64, KL penalties in the reward, and group advantages. Needs torch; run from the repository
root."""

import json
import math
import os

import torch

torch.set_default_dtype(torch.float64)
OUT = "tests/golden/rl"
AGGREGATIONS = ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]
ESTIMATORS = ["k1", "abs", "k2", "k3", "k1+", "k3+"]
LMAX = 7


def make_batch(seed, spread):
    """Four responses of 1, 6, 4 and 3 tokens; some tokens masked, one response without a counted token."""
    g = torch.Generator().manual_seed(seed)
    lengths = [1, 6, 4, 3]
    n = sum(lengths)
    mask = [1, 1, 0, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0, 0]
    advantage = [a for a, k in zip([0.75, -1.25, 1.5, -0.5], lengths) for _ in range(k)]
    if seed % 2:
        advantage = [-a for a in advantage]
    lp = -3 * torch.rand(n, generator=g)
    return {
        "lengths": lengths, "mask": mask, "advantage": advantage, "logprob": lp.tolist(),
        "old_logprob": (lp + spread * torch.randn(n, generator=g)).tolist(),
        "ref_logprob": (lp + 0.3 * torch.randn(n, generator=g)).tolist(),
        "entropy": (2 * torch.rand(n, generator=g)).tolist(),
    }


def weights(batch, aggregation):
    tokens, sequences, start, out = sum(batch["mask"]), 0, 0, []
    counts = []
    for k in batch["lengths"]:
        counts.append(sum(batch["mask"][start:start + k]))
        start += k
    sequences = sum(c > 0 for c in counts)
    start = 0
    for k, c in zip(batch["lengths"], counts):
        for m in batch["mask"][start:start + k]:
            omega = {"token-mean": 1 / tokens, "seq-mean-token-mean": 1 / (sequences * max(c, 1)),
                     "seq-mean-token-sum": 1 / sequences, "seq-mean-token-sum-norm": 1 / (sequences * LMAX)}
            out.append(omega[aggregation] if m else 0.0)
        start += k
    return torch.tensor(out)


def kl_value(name, d, clamp):
    straight, e = d * d / 2, torch.clamp(-d, -clamp, clamp) if clamp > 0 else -d
    value = {"k1": d, "abs": d.abs(), "k2": straight, "k3": torch.exp(e) - 1 - e}[name.rstrip("+")]
    return (value - straight).detach() + straight if name.endswith("+") else value


def grpo_case(batch, config):
    lp = torch.tensor(batch["logprob"], requires_grad=True)
    entropy = torch.tensor(batch["entropy"], requires_grad=True)
    lo, lf, a = (torch.tensor(batch[k]) for k in ("old_logprob", "ref_logprob", "advantage"))
    mask, omega = torch.tensor(batch["mask"], dtype=torch.bool), weights(batch, config["aggregation"])
    c = config["ratio_clamp"]
    rho = torch.exp(torch.clamp(lp - lo, -c, c) if c > 0 else lp - lo)
    free, held = -a * rho, -a * torch.clamp(rho, 1 - config["clip_low"], 1 + config["clip_high"])
    pg = (omega * torch.maximum(free, held)).sum()
    kl = (omega * kl_value(config["kl_estimator"], lp - lf, c)).sum()
    bounded = mask & (config["kl_estimator"][:2] == "k3") & (c > 0) & ((lp - lf).abs() > c)
    ent = (omega * entropy).sum()
    loss = pg + config["kl_coef"] * kl - config["entropy_coef"] * ent
    loss.backward()
    clipped = (held > free) & mask
    low = int((clipped & (a < 0)).sum()), int((clipped & (a > 0)).sum())
    return {
        "config": config, "actor/loss": loss.item(), "actor/pg_loss": pg.item(), "actor/kl_loss": kl.item(),
        "actor/entropy": ent.item(), "actor/pg_clipfrac": (clipped.sum() / mask.sum()).item(),
        "actor/kl_clipfrac": (bounded.sum() / mask.sum()).item(),
        "actor/ppo_kl": ((lo - lp)[mask].sum() / mask.sum()).item(), "clipped_low_high": low,
        "dlogprob": lp.grad.tolist(), "dentropy": entropy.grad.tolist(),
    }


def grpo_cases():
    batches, cases = [make_batch(1, 0.4), make_batch(2, 0.4), make_batch(3, 30.0)], []
    base = {"clip_low": 0.2, "clip_high": 0.28, "ratio_clamp": 20.0, "entropy_coef": 0.0, "kl_coef": 0.0,
            "kl_estimator": "k3", "aggregation": "token-mean"}
    for aggregation in AGGREGATIONS:
        for index in (0, 1):
            for estimator in [None] + ESTIMATORS:
                config = dict(base, aggregation=aggregation, entropy_coef=0.01 if index else 0.0)
                if estimator:
                    config |= {"kl_coef": 0.04, "kl_estimator": estimator}
                cases.append({"batch": index} | grpo_case(batches[index], config))
    for clamp in (20.0, 0.0):  # differences far beyond the clamp
        cases.append({"batch": 2} | grpo_case(batches[2], dict(base, ratio_clamp=clamp)))
    narrow = dict(base, clip_low=0.05, clip_high=0.05, ratio_clamp=0.1)
    cases.append({"batch": 0} | grpo_case(batches[0], narrow))
    assert all(any(c["clipped_low_high"][side] for c in cases) for side in (0, 1))
    return batches, cases


def sft_cases(batches):
    cases = []
    for index, batch in enumerate(batches):
        for aggregation in AGGREGATIONS[:3]:
            lp = torch.tensor(batch["logprob"], requires_grad=True)
            loss = -(weights(batch, aggregation) * lp).sum()
            loss.backward()
            cases.append({"batch": index, "aggregation": aggregation, "train/loss": loss.item(),
                          "dlogprob": lp.grad.tolist()})
    return cases


def kl_reward_cases(batch):
    d = torch.tensor(batch["old_logprob"]) - torch.tensor(batch["ref_logprob"])
    mask, cases = torch.tensor(batch["mask"], dtype=torch.bool), []
    for estimator in ESTIMATORS:
        k, start, penalties = kl_value(estimator, d, 20.0), 0, []
        for length in batch["lengths"]:
            part = slice(start, start + length)
            penalties.append(k[part][mask[part]].sum().item())
            start += length
        cases.append({"estimator": estimator, "kl": penalties})
    return cases


def advantage_cases():
    g = torch.Generator().manual_seed(5)
    rewards = [[1, 0, 0, 1, 1], [0.1] * 3, [0.7], [0, 0], [1, -1], [2.5, 2.5, 2.5000001], [-3],
               torch.randn(16, generator=g).tolist(), (1e6 + torch.randn(8, generator=g)).tolist(),
               [0.1 + 0.2, 0.3], [1e-9, 2e-9, 3e-9]]
    cases = []
    for eps in (1e-6, 1e-4):
        for r in map(torch.tensor, ([float(x) for x in r] for r in rewards)):
            if len(r) == 1:
                a = r / (1 + eps)  # the "verl" rule; the others give 0
            elif r.max() == r.min():
                a = torch.zeros_like(r)
            else:
                a = (r - r.mean()) / (r.std(unbiased=True) + eps)
            cases.append({"eps": eps, "rewards": r.tolist(), "advantages": a.tolist()})
    return cases


def write(name, value):
    os.makedirs(OUT, exist_ok=True)

    def shown(v):
        rows = ",\n  ".join(json.dumps(x) for x in v) if isinstance(v, list) else None
        return json.dumps(v) if rows is None else f"[\n  {rows}\n ]"

    with open(f"{OUT}/{name}", "w") as f:
        f.write("{\n " + ",\n ".join(f"{json.dumps(k)}: {shown(v)}" for k, v in value.items()) + "\n}\n")


def main():
    batches, cases = grpo_cases()
    write("losses.json", {"lmax": LMAX, "batches": batches, "grpo": cases, "sft": sft_cases(batches),
                          "kl_reward": kl_reward_cases(batches[0])})
    write("advantages.json", {"cases": advantage_cases()})
    assert all(math.isfinite(x) for c in cases for x in c["dlogprob"])


if __name__ == "__main__":
    main()
