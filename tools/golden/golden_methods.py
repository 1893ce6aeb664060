#!/usr/bin/env python3
"""Writes tests/golden/rl/methods.json: every loss, advantage and name of src/config/methods.h in fp64. Losses are
written as in trl's GRPO trainer (coef_1, coef_2, log_importance_weights, per_token_loss) and differentiated by
torch autograd; advantages are exact fractions (the statistics module) up to the last operations. Needs torch; run
from the repository root."""

import json
import math
import random
import statistics
from fractions import Fraction

import torch

torch.set_default_dtype(torch.float64)
OUT = "tests/golden/rl/methods.json"
LMAX = 7
AGGREGATIONS = ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "token-sum"]
BASE = {"loss": "ppo", "clip_low": 0.2, "clip_high": 0.28, "dual_clip": 0.0, "ratio_clamp": 20.0, "kl_coef": 0.0,
        "kl_estimator": "k3", "entropy_coef": 0.0, "aggregation": "token-mean", "tis_cap": 2.0, "importance": "token",
        "importance_form": "truncate", "importance_bounds": []}


# ---- losses ----

def make_batch(seed, spread, by_token=False):
    """Responses of 1, 6, 0, 4, 3 and 2 tokens: tool tokens inside, an empty one, one without counted tokens."""
    g = torch.Generator().manual_seed(seed)
    lengths, mask = [1, 6, 0, 4, 3, 2], [1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 1, 0, 0, 0, 1, 1]
    n = sum(lengths)
    advantage = [a for a, k in zip([0.75, -1.25, 2.0, 1.5, -0.5, 0.0], lengths) for _ in range(k)]
    if by_token:
        advantage = torch.randn(n, generator=g).tolist()
    lp = -3 * torch.rand(n, generator=g)
    old = lp + spread * torch.randn(n, generator=g)
    sampled = old + 0.5 * torch.randn(n, generator=g)
    sampled[lengths[0]:lengths[0] + lengths[1]] = old[lengths[0]:lengths[0] + lengths[1]]  # on policy
    return {"lengths": lengths, "mask": mask, "advantage": advantage, "logprob": lp.tolist(),
            "old_logprob": old.tolist(), "sampled_logprob": sampled.tolist(),
            "ref_logprob": (lp + 0.3 * torch.randn(n, generator=g)).tolist(),
            "entropy": (2 * torch.rand(n, generator=g)).tolist()}


def parts(batch):
    start = 0
    for k in batch["lengths"]:
        yield slice(start, start + k)
        start += k


def aggregate(batch, per_token, mode):
    """The modes as verl and trl write them, over responses with a counted token."""
    mask = torch.tensor(batch["mask"], dtype=torch.bool)
    rows = [per_token[p][mask[p]] for p in parts(batch)]
    rows = [r for r in rows if len(r)]
    tokens = sum(len(r) for r in rows)
    total = sum((r.sum() for r in rows), torch.zeros(()))
    return {"token-mean": lambda: total / max(tokens, 1),
            "token-sum": lambda: total,
            "seq-mean-token-mean": lambda: sum(r.mean() for r in rows) / max(len(rows), 1),
            "seq-mean-token-sum": lambda: total / max(len(rows), 1),
            "seq-mean-token-sum-norm": lambda: total / max(len(rows), 1) / LMAX}[mode]()


def policy_term(batch, config, lp):
    lo, a = torch.tensor(batch["old_logprob"]), torch.tensor(batch["advantage"])
    mask = torch.tensor(batch["mask"])
    low, high, c = 1 - config["clip_low"], 1 + config["clip_high"], config["ratio_clamp"]
    log_ratio = lp - lo
    if config["loss"] == "reinforce":
        return -a * lp
    if config["loss"] == "gspo":  # importance_sampling_level = "sequence"; by token with its own advantage
        log_weights = torch.zeros_like(lp)
        for p in parts(batch):
            mean = (log_ratio[p] * mask[p]).sum() / mask[p].sum().clamp(min=1)
            log_weights[p] = lp[p] - lp[p].detach() + mean.detach()
        coef_1 = torch.exp(log_weights)
    else:
        coef_1 = torch.exp(torch.clamp(log_ratio, -c, c) if c > 0 else log_ratio)
    coef_2 = torch.clamp(coef_1, low, high)
    if config["loss"] == "cispo":
        return -coef_2.detach() * a * lp
    loss = torch.maximum(-a * coef_1, -a * coef_2)
    if config["loss"] == "ppo" and config["dual_clip"] > 0:
        loss = torch.where(a < 0, torch.minimum(-a * config["dual_clip"], loss), loss)
    return loss


def importance(batch, config):
    lo, lb = torch.tensor(batch["old_logprob"]), torch.tensor(batch["sampled_logprob"])
    mask, d = torch.tensor(batch["mask"]), lo - lb
    low, high = config["importance_bounds"] or (0.0, config["tis_cap"])
    if config["tis_cap"] == 0:
        return torch.ones_like(d)
    if config["importance"] != "token":
        whole = torch.zeros_like(d)
        for p in parts(batch):
            total = (d[p] * mask[p]).sum()
            whole[p] = total / mask[p].sum().clamp(min=1) if config["importance"] == "geometric" else total
        d = whole
    w = torch.exp(torch.clamp(d, -20, 20))
    inside = torch.where((w < low) | (w > high), torch.zeros_like(w), w)
    held = torch.clamp(w, low, high) if config["importance_form"] == "truncate" else inside
    return torch.where(d == 0, torch.ones_like(w), held)


def kl_value(name, d, clamp):
    straight, e = d * d / 2, torch.clamp(-d, -clamp, clamp) if clamp > 0 else -d
    value = {"k1": d, "abs": d.abs(), "k2": straight, "k3": torch.exp(e) - 1 - e}[name.rstrip("+")]
    return (value - straight).detach() + straight if name.endswith("+") else value


def loss_case(batch, config):
    lp = torch.tensor(batch["logprob"], requires_grad=True)
    entropy = torch.tensor(batch["entropy"], requires_grad=True)
    per_token = importance(batch, config) * policy_term(batch, config, lp)
    pg = aggregate(batch, per_token, config["aggregation"])
    loss = pg
    if config["kl_coef"]:
        kl = kl_value(config["kl_estimator"], lp - torch.tensor(batch["ref_logprob"]), config["ratio_clamp"])
        loss = loss + config["kl_coef"] * aggregate(batch, kl, config["aggregation"])
    if config["entropy_coef"]:
        loss = loss - config["entropy_coef"] * aggregate(batch, entropy, config["aggregation"])
    loss.backward()
    case = {"config": config, "actor/loss": loss.item(), "actor/pg_loss": pg.item(), "dlogprob": lp.grad.tolist()}
    return case | ({"dentropy": entropy.grad.tolist()} if config["entropy_coef"] else {})


def loss_cases(batches):
    own = {"ppo": [{}, {"dual_clip": 1.5}, {"ratio_clamp": 0.0}, {"ratio_clamp": 0.3}],
           "gspo": [{"clip_low": 0.05, "clip_high": 0.05}, {"clip_low": 3e-4, "clip_high": 4e-4}],
           "cispo": [{"clip_low": 1.0, "clip_high": 4.0}, {"clip_low": 0.1, "clip_high": 0.1}, {"ratio_clamp": 0.3}],
           "reinforce": [{}]}
    cases = {}
    for name, variants in own.items():
        cases[name] = []
        for index in range(len(batches)):
            configs = [dict(v) for v in variants]
            cases[name] += [{"batch": index} | loss_case(batches[index], BASE | {"loss": name} | c) for c in configs]
            if index > 1:
                continue
            configs = [{"aggregation": mode} for mode in AGGREGATIONS[1:]]
            configs += [{"importance": level, "importance_form": form, "importance_bounds": bounds}
                        for level in ("token", "sequence", "geometric") for form in ("truncate", "mask")
                        for bounds in ([], [0.7, 1.4])]
            configs += [{"kl_coef": 0.04, "entropy_coef": 0.01}, {"tis_cap": 0.0}]
            cases[name] += [{"batch": index} | loss_case(batches[index], BASE | {"loss": name} | c) for c in configs]
    for case in (c for rows in cases.values() for c in rows):
        case["config"] = {k: v for k, v in case["config"].items() if v != BASE[k]}
    return cases


# ---- advantages ----

STEP = {"std": "group", "eps": 1e-6, "single_group": "drop", "gamma": 1.0, "kl_coef": 0.0, "kl_estimator": "k1",
        "weights": {"exact": 1.0, "length": 0.5}}


def response(rng, reward, mask, excluded=False):
    lp = [-3 * rng.random() for _ in mask]
    return {"reward": reward, "excluded": excluded, "mask": mask, "logprobs": lp,
            "ref_logprobs": [x + rng.gauss(0, 0.3) for x in lp],
            "parts": {"exact": reward, "length": round(rng.uniform(-1, 0), 3)}}


def steps():
    """Three steps: usual groups with tool tokens, cut and empty responses and missing rewards; groups of one
    among others; nothing to learn from."""
    rng = random.Random(7)
    masks = [[1, 1, 1], [1], [1, 0, 0, 1, 1], [], [0, 0], [1, 1]]
    usual = [[response(rng, r, masks[i % 6], excluded=(i == 4)) for i, r in enumerate(rs)]
             for rs in ([1, 0, 0, 1, 1], [0.5, -1.25, 2, 2, 7, 0.1], [0.0, 0.0, 1.0, 0.0], [3, 3, 3])]
    lone = [[response(rng, 1.5, masks[0])], [response(rng, 0.25, masks[2]), response(rng, -1, masks[1])],
            [response(rng, 2, masks[5]), response(rng, 9, masks[5], excluded=True)]]
    equal = [[response(rng, 0.1, masks[0]) for _ in range(3)], [response(rng, 0.1, masks[2])]]
    for group in equal:
        for r in group:
            r["parts"] = {"exact": 0.1, "length": -0.3}
    return [usual, lone, equal]


def exact(values):
    return [Fraction(v) for v in values]


def mean(values):
    return float(statistics.mean(exact(values)))


def std(values):
    return math.sqrt(statistics.variance(exact(values))) if len(values) > 1 else 1.0


def k_terms(r, o):
    d = torch.tensor(r["logprobs"]) - torch.tensor(r["ref_logprobs"])
    return [m * k for m, k in zip(r["mask"], kl_value(o["kl_estimator"], d, 20.0).tolist())]


def shaped(step, o):
    """Rewards with the KL in them, responses that count, and groups after the rule for those of one."""
    groups = []
    for group in step:
        rows = [dict(r, total=r["reward"] - o["kl_coef"] * sum(k_terms(r, o))) for r in group]
        groups.append(rows)
    return groups


def centred(values, o):
    if len(values) == 1:
        return [values[0] if o["single_group"] == "verl" else 0.0]
    if max(values) == min(values):
        return [0.0] * len(values)
    m = statistics.mean(exact(values))
    return [float(Fraction(v) - m) for v in values]


def whiten(tokens):
    counted = [a for a, m in tokens if m]
    if not counted or max(counted) == min(counted):
        return [0.0 for _ in tokens]
    m = mean(counted)
    s = math.sqrt(sum((a - m) ** 2 for a in counted) / max(len(counted) - 1, 1) + 1e-8)
    return [(a - m) / s if k else 0.0 for a, k in tokens]


def advantages(name, step, o):
    """Per response its advantages by token; None where nothing of it is trained."""
    groups = shaped(step, o)
    used = [[r for r in g if not r["excluded"]] for g in groups]
    if name != "reinforce++" and o["single_group"] == "drop":
        used = [g if len(g) > 1 else [] for g in used]
    used = [g for g in used if g]
    everything = [r["total"] for g in used for r in g]
    for g in used:
        values = [r["total"] for r in g]
        middle = centred(values, o)
        scale = {"group": std(values), "batch": std(everything), "none": None}[o["std"]]
        scale = 1.0 if scale is None else scale + o["eps"]
        if name == "grpo":
            result = [a / scale for a in middle]
        elif name == "rloo":
            result = [v - mean(values[:i] + values[i + 1:]) for i, v in enumerate(values)] if len(g) > 1 else middle
        elif name == "reinforce++":
            result = values
        elif name == "reinforce++-baseline":
            result = middle
        elif name == "opo":
            n = [sum(r["mask"]) for r in g]
            base = sum(a * b for a, b in zip(n, values)) / sum(n) if sum(n) else 0.0
            result = [v - base for v in values] if len(set(values)) > 1 else middle
        elif name == "gpg":
            result = [a * len(everything) / max(sum(v != 0 for v in everything), 1) for a in middle]
        elif name == "pass@k":
            top = sorted(values, reverse=True)
            lead = (top[0] - top[1]) / scale if len(top) > 1 else 0.0
            result = [lead if v == top[0] and values.count(v) == 1 else 0.0 for v in values]
        elif name == "gdpo":
            result = [0.0] * len(g)
            for part, weight in o["weights"].items():
                own = [r["parts"][part] for r in g]
                for i, a in enumerate(centred(own, o)):
                    result[i] += weight * a / ((std(own) if len(own) > 1 else 1.0) + 1e-4)
        for r, a in zip(g, result):
            r["a"], r["tokens"] = a, [a] * len(r["mask"])
    rows = [r for g in used for r in g]
    if name == "reinforce++":
        for r in rows:
            k, later, seen = k_terms(r, o), 0.0, False
            for t in reversed(range(len(r["mask"]))):
                if r["mask"][t]:
                    later = (o["gamma"] * later if seen else r["reward"]) - o["kl_coef"] * k[t]
                    r["tokens"][t], seen = later, True
    if name.startswith("reinforce++"):
        flat = iter(whiten([(a, m) for r in rows for a, m in zip(r["tokens"], r["mask"])]))
        for r in rows:
            r["tokens"] = [next(flat) for _ in r["mask"]]
            r["a"] = None
    if name == "gdpo" and rows:
        m, s = mean([r["a"] for r in rows]), std([r["a"] for r in rows]) if len(rows) > 1 else 0.0
        equal = len({r["a"] for r in rows}) == 1
        for r in rows:
            r["a"] = 0.0 if equal else (r["a"] - m) / (s + 1e-4)
            r["tokens"] = [r["a"]] * len(r["mask"])
    return [[{"a": r["a"], "tokens": r["tokens"]} if "a" in r else None for r in g] for g in groups]


def advantage_cases(all_steps):
    own = {"grpo": [{"std": s, "eps": e} for s in ("group", "batch", "none") for e in (1e-6, 1e-4)],
           "rloo": [{}], "opo": [{}], "gpg": [{}], "gdpo": [{}, {"weights": {"length": 2.0, "exact": 0.25}}],
           "pass@k": [{"std": s} for s in ("group", "none")],
           "reinforce++": [{}, {"kl_coef": 0.1}, {"gamma": 0.9}, {"gamma": 0.9, "kl_coef": 0.05, "kl_estimator": "k3"}],
           "reinforce++-baseline": [{}, {"kl_coef": 0.1}]}
    cases = {}
    for name, variants in own.items():
        rules = [(v, rule) for v in variants for rule in ("drop", "zero", "verl") if rule != "drop" or v == variants[0]]
        cases[name] = [{"step": i, "options": v | {"single_group": rule},
                        "advantages": advantages(name, step, STEP | v | {"single_group": rule})}
                       for v, rule in rules for i, step in enumerate(all_steps)]
    return cases


# ---- names: rewards in, gradients out ----

NAMES = {"grpo": ("grpo", {}, {"clip_high": 0.2}, "loss", "k3"),
         "dr.grpo": ("grpo", {"std": "none"}, {"clip_high": 0.2, "aggregation": "seq-mean-token-sum-norm"}, "loss", "k3"),
         "dapo": ("grpo", {}, {}, "loss", "k3"),
         "gspo": ("grpo", {}, {"loss": "gspo", "clip_low": 3e-4, "clip_high": 4e-4,
                               "aggregation": "seq-mean-token-mean"}, "loss", "k3"),
         "cispo": ("grpo", {}, {"loss": "cispo", "clip_low": 1.0, "clip_high": 4.0}, "loss", "k3"),
         "rloo": ("rloo", {}, {"clip_high": 0.2}, "reward", "k1"),
         "reinforce++": ("reinforce++", {}, {"clip_high": 0.2}, "reward", "k1"),
         "reinforce++-baseline": ("reinforce++-baseline", {}, {"clip_high": 0.2}, "loss", "k2"),
         "sft": None}
KL = 0.05


def name_case(name, step):
    rng = random.Random(11)
    rows = [r for g in step for r in g]
    lp = [x + rng.gauss(0, 0.2) for r in rows for x in r["logprobs"]]
    if NAMES[name] is None:
        flat = torch.tensor(lp, requires_grad=True)
        batch = {"lengths": [len(r["mask"]) for r in rows], "mask": [m for r in rows for m in r["mask"]]}
        loss = aggregate(batch, -flat, "token-mean")
        loss.backward()
        return {"logprob": lp, "loss": loss.item(), "dlogprob": flat.grad.tolist()}
    kind, options, config, place, estimator = NAMES[name]
    o = STEP | options | {"kl_coef": KL if place == "reward" else 0.0, "kl_estimator": estimator}
    found = [a for g in advantages(kind, step, o) for a in g]
    batch = {"lengths": [len(r["mask"]) for r in rows],
             "mask": [m if a else 0 for r, a in zip(rows, found) for m in r["mask"]],
             "advantage": [x for r, a in zip(rows, found) for x in (a["tokens"] if a else [0.0] * len(r["mask"]))],
             "logprob": lp, "entropy": [0.5] * len(lp),
             "ref_logprob": [x for r in rows for x in r["ref_logprobs"]]}
    batch["old_logprob"] = batch["sampled_logprob"] = [x for r in rows for x in r["logprobs"]]
    case = loss_case(batch, BASE | config | {"kl_coef": KL if place == "loss" else 0.0, "kl_estimator": estimator})
    return {"logprob": lp, "loss": case["actor/loss"], "dlogprob": case["dlogprob"]}


def main():
    batches = [make_batch(1, 0.4), make_batch(2, 0.4, by_token=True), make_batch(3, 3.0)]
    everything_clipped = make_batch(4, 0.0)
    everything_clipped["old_logprob"] = [x - math.copysign(1.0, a) for x, a in
                                         zip(everything_clipped["logprob"], everything_clipped["advantage"])]
    batches.append(everything_clipped)
    all_steps = steps()
    value = {"lmax": LMAX, "batches": batches, "losses": loss_cases(batches), "steps": all_steps,
             "advantages": advantage_cases(all_steps), "kl": KL,
             "names": {name: name_case(name, all_steps[0]) for name in NAMES}}
    with open(OUT, "w") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {shown(v)}" for k, v in value.items()) + "\n}\n")


def shown(v):
    if isinstance(v, dict):
        return "{" + ",\n".join(f"{json.dumps(k)}: {shown(x)}" for k, x in v.items()) + "}"
    return "[" + ",\n".join(json.dumps(x) for x in v) + "]" if isinstance(v, list) else json.dumps(v)


if __name__ == "__main__":
    main()
