"""Rollouts for tests/outside/run.py, and a teacher. Pure functions of the seed here.

given.jsonl  log-probs beside those of the model, no versions: the ratio starts at them
older.jsonl  the same of a third step: of older weights, of those of now, and of both, which changed within a response
bare.jsonl   without log-probs, which temper computes
teacher/     another shape with the same vocabulary
Among the responses are an empty one, one without counted tokens, tool tokens, a group of one, a group of equal rewards,
and one whose reward is missing.
"""

import json
import os

import numpy as np
import torch
from safetensors.torch import load_file

import golden

GROUPS = [4, 4, 4, 4, 4, 1]
COUNT, LONGEST, STEP = sum(GROUPS), 12, 3


def response(rng, weights, vocabulary, group, sample):
    ids = lambda n: rng.integers(0, vocabulary, int(n)).tolist()
    n = 0 if (group, sample) == (1, 1) else int(rng.integers(1, LONGEST + 1))
    mask = [0] * n if (group, sample) == (2, 3) else (rng.random(n) > 0.2).astype(int).tolist()
    parts = {"exact": 1.0, "length": 0.0} if group == 4 else \
            {"exact": float(rng.integers(0, 2)), "length": -round(float(rng.random()), 3)}
    reward = None if (group, sample) == (3, 0) else parts["exact"] + 0.5 * parts["length"]
    line = {"step": STEP, "group": group, "sample": sample, "prompt_tokens": ids(3 + group), "response_tokens": ids(n),
            "response_mask": mask, "reward": reward, "raw_reward": reward, "reward_parts": parts,
            "finish_reason": "length" if n % 3 == 0 else "stop"}
    with torch.no_grad():
        own = golden.response_stats(weights, line)[0].numpy()
    return line | {"logprobs": (own + 0.2 * rng.standard_normal(n)).tolist(),
                   "ref_logprobs": (own + 0.3 * rng.standard_normal(n)).tolist()}


def versions(line):
    """Of a line of step 3: weights 2 are those of now."""
    n, kind = len(line["response_tokens"]), (line["group"] + line["sample"]) % 3
    if kind < 2 or n < 2:
        return {"policy_version": [kind % 2 + 1] * 2}
    return {"policy_version": [1, 2], "policy_versions": [[1, n // 2], [2, n - n // 2]]}


def write_teacher(folder, model):
    settings = model | {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2,
                        "num_key_value_heads": 1}
    os.makedirs(folder)
    golden.write_json(os.path.join(folder, "config.json"), settings)
    rng = np.random.default_rng(8)
    shapes = {n: tuple(p.shape) for n, p in golden.meta_parameters(folder).items()}
    golden.write_weights(folder, {n: golden.random_weight(n, s, rng).float() for n, s in sorted(shapes.items())})


def write(folder, model):
    torch.set_num_threads(1)
    with open(os.path.join(model, "config.json")) as f:
        golden.REPLAY = json.load(f)
    write_teacher(os.path.join(folder, "teacher"), golden.REPLAY)
    weights = {n: t.double() for n, t in load_file(os.path.join(model, "model.safetensors")).items()}
    rng = np.random.default_rng(44)
    lines = [response(rng, weights, golden.REPLAY["vocab_size"], g, s) for g, n in enumerate(GROUPS) for s in range(n)]
    unknown = {"logprobs": None, "ref_logprobs": None}
    for name, file in (("given", lines), ("older", [r | versions(r) for r in lines]), ("bare", [r | unknown for r in lines])):
        with open(os.path.join(folder, name + ".jsonl"), "w") as f:
            f.writelines(json.dumps(line) + "\n" for line in file)
