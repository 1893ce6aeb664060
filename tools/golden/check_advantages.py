#!/usr/bin/env python3
"""Recomputes scores, rewards, GRPO advantages and rollout metrics of a run from its rollouts/step-*.jsonl and
compares them, float for float, with what the run wrote (rollout files and metrics.jsonl). Plain Python 3.11.

usage: check_advantages.py RUN_DIR     exit status 0 when everything is equal, 1 when not, 2 when unusable

A score is computed again from response and answer by the rules of reward_rules.py. The arithmetic is that of src/rl: double, sums from left to right in order of group and sample.
  raw_reward = 0 + w1 p1 + w2 p2 ...        over task rewards in config order (p unweighted)
  reward     = raw_reward + w p ...         over shaping rewards ("length"), then - kl_coef sum_t k_t if KL is
                                            in the reward
  advantage  = (reward - mean) / (sqrt(sum (reward - mean)^2 / (n - 1)) + eps), 0 when max == min
Rollouts that were replayed carry their rewards as given; their parts are compared only when present. Every step
of metrics.jsonl needs its rollouts.
"""

import glob
import json
import math
import os
import sys
import tomllib

from reward_rules import RULES

SHAPING = {"length"}


def kl_value(name, d, algorithm):
    if name != "k3":
        return {"k1": d, "abs": abs(d), "k2": d * d / 2}[name]
    limit = algorithm["ratio_clamp"] or math.inf
    d = max(-limit, min(d, limit))
    value = math.expm1(-d) + d
    return min(value, 10.0) if algorithm["k3_clamp"] else value


def kl_penalty(row, algorithm):
    total = 0.0
    for mask, lo, lf in zip(row["response_mask"], row["logprobs"] or [], row["ref_logprobs"] or []):
        if mask:
            total += kl_value(algorithm["kl_estimator"].rstrip("+"), lo - lf, algorithm)
    return total


def reward_sums(row, functions, algorithm):
    """(raw, reward) of a response from its parts."""
    parts = row["reward_parts"]
    raw = 0.0
    for name, options in functions.items():
        if name not in SHAPING:
            raw += options["weight"] * parts[name]
    reward = raw
    for name, options in functions.items():
        if name in SHAPING:
            reward += options["weight"] * parts[name]
    if algorithm["kl_in"] == "reward" and algorithm["kl_coef"] != 0:
        reward -= algorithm["kl_coef"] * kl_penalty(row, algorithm)
    return raw, reward


def group_advantages(rewards, eps, single_group):
    if len(rewards) == 1:
        return [rewards[0] / (1 + eps) if single_group == "verl" else 0.0]
    if max(rewards) == min(rewards):
        return [0.0] * len(rewards)
    total = 0.0
    for r in rewards:
        total += r
    mean, squares = total / len(rewards), 0.0
    for r in rewards:
        squares += (r - mean) * (r - mean)
    scale = math.sqrt(squares / (len(rewards) - 1)) + eps
    return [(r - mean) / scale for r in rewards]


def statistics(metrics, name, values, times=None):
    times = times or [1] * len(values)
    if not any(times):
        return
    total = 0.0
    for v, n in zip(values, times):
        total += n * v
    values = [v for v, n in zip(values, times) if n]
    metrics |= {f"{name}/mean": total / sum(times), f"{name}/max": float(max(values)),
                f"{name}/min": float(min(values))}


def rollout_metrics(rows):
    metrics = {}
    statistics(metrics, "critic/score", [r["raw_reward"] for r in rows])
    statistics(metrics, "critic/rewards", [r["reward"] for r in rows])
    statistics(metrics, "critic/advantages", [r["advantage"] for r in rows],
               [sum(m != 0 for m in r["response_mask"]) for r in rows])
    statistics(metrics, "response_length", [len(r["response_tokens"]) for r in rows])
    statistics(metrics, "prompt_length", [len(r["prompt_tokens"]) for r in rows])
    metrics["response_length/clip_ratio"] = sum(r["finish_reason"] == "length" for r in rows) / len(rows)
    return metrics


class Comparison:
    def __init__(self):
        self.compared, self.wrong = {}, 0

    def equal(self, kind, where, found, expected):
        self.compared[kind] = self.compared.get(kind, 0) + 1
        if found is not None and float(found) == float(expected):
            return
        self.wrong += 1
        if self.wrong <= 20:
            print(f"{where}: the run wrote {found!r}, recomputed {expected!r}", file=sys.stderr)

    def summary(self):
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.compared.items())
        return f"{sum(self.compared.values())} numbers compared ({kinds}), {self.wrong} differ"


def check_rewards(where, row, replayed, config, comparison):
    algorithm, functions = config
    if replayed and not set(functions) <= set(row["reward_parts"]):
        return
    for name, options in functions.items():
        comparison.equal("scores", f"{where} {name}", row["reward_parts"].get(name), RULES[name](row, options))
    raw, reward = reward_sums(row, functions, algorithm)
    comparison.equal("rewards", f"{where} raw_reward", row["raw_reward"], raw)
    comparison.equal("rewards", f"{where} reward", row["reward"], reward)


def check_step(path, rows, metrics, config, comparison):
    algorithm, _ = config
    groups = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    order = [(row["group"], row["sample"]) for row in rows]
    if order != sorted(order):
        sys.exit(f"{path}: lines are not in order of group and sample")
    for group, members in groups.items():
        expected = group_advantages([float(r["reward"]) for r in members], algorithm["advantage_eps"],
                                    algorithm["single_group"])
        for row, advantage in zip(members, expected):
            where = f"{path}: group {group} sample {row['sample']}"
            check_rewards(where, row, "replay/groups" in metrics, config, comparison)
            comparison.equal("advantages", f"{where} advantage", row["advantage"], advantage)
    for key, value in rollout_metrics(rows).items():
        comparison.equal("metrics", f"metrics.jsonl step {metrics['step']} {key}", metrics.get(key), value)


def read_config(run):
    with open(os.path.join(run, "config.toml"), "rb") as f:
        config = tomllib.load(f)
    algorithm = {"kl_in": "loss", "kl_coef": 0.0, "kl_estimator": "k3", "advantage_eps": 1e-6,
                 "ratio_clamp": 20.0, "k3_clamp": False, "single_group": "drop", "name": "grpo"} | config.get("algorithm", {})
    functions = {}
    for function in config["reward"]["functions"]:
        function = {"name": function} if isinstance(function, str) else function
        functions[function["name"]] = function | {"weight": float(function.get("weight", 1))}
    return algorithm, functions


def read_lines(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def main():
    if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
        print(__doc__, file=sys.stderr)
        return 2
    run = sys.argv[1]
    config = read_config(run)
    kind = config[0]["name"], config[0].get("advantage", "grpo"), config[0].get("advantage_std", "group")
    if kind[0] == "sft" or kind[1:] != ("grpo", "group"):
        print(f"{run}: {kind[0]} with advantage {kind[1]}, std of {kind[2]}: not the formula above", file=sys.stderr)
        return 2
    metrics = {m["step"]: m for m in read_lines(os.path.join(run, "metrics.jsonl"))}
    paths = sorted(glob.glob(os.path.join(run, "rollouts", "step-*.jsonl")))
    comparison = Comparison()
    steps = []
    for path in paths:
        rows = read_lines(path)
        steps.append(rows[0]["step"] if rows else None)
        if steps[-1] in metrics:
            check_step(path, rows, metrics[steps[-1]], config, comparison)
    if sorted(metrics) != steps:
        print(f"{run}: metrics.jsonl has the steps {sorted(metrics)}, rollouts/ {steps}", file=sys.stderr)
        comparison.wrong += 1
    print(f"{len(paths)} steps, {comparison.summary()}")
    return 1 if comparison.wrong or not comparison.compared else 0


if __name__ == "__main__":
    sys.exit(main())
