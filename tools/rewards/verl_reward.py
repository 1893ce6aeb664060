#!/usr/bin/env python3
"""A reward function written for verl, as a command reward.

    [reward]
    functions = [{name = "command", argv = ["python3", "tools/rewards/verl_reward.py", "my_reward.py"]}]

my_reward.py defines compute_score(data_source, solution_str, ground_truth, extra_info); another name can be given
behind the file. It returns a number, or a dict with "score" (other numbers in it become parts of the reward).
data_source and extra_info are keys of the data line; the ground truth is its reward_model.ground_truth, else its answer.
"""
import importlib.util
import json
import numbers
import os
import sys


def load(path, name):
    spec = importlib.util.spec_from_file_location("reward", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def ground_truth(call):
    reward_model = call["record"].get("reward_model")
    if isinstance(reward_model, dict) and "ground_truth" in reward_model:
        return reward_model["ground_truth"]
    return call["answer"]


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the function prints goes to stderr: stdout holds answers alone
    score = load(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "compute_score")
    for line in sys.stdin:
        call = json.loads(line)
        record = call["record"]
        result = score(
            data_source=record.get("data_source", ""),
            solution_str=call["response"],
            ground_truth=ground_truth(call),
            extra_info=record.get("extra_info"),
        )
        parts = {}
        if isinstance(result, dict):
            parts = {k: float(v) for k, v in result.items() if k != "score" and isinstance(v, numbers.Real)}
            result = result["score"]
        print(json.dumps({"id": call["id"], "reward": float(result), "parts": parts}), file=answers, flush=True)


if __name__ == "__main__":
    main()
