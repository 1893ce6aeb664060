#!/usr/bin/env python3
"""Updates of `temper train --replay` in fp64 beside those of torch autograd (tools/golden/outside.py): every name of
src/config/methods.h, every advantage, loss, correction of older samples, KL, a teacher, and adapters. A line a case;
1 if one differs. Needs torch, safetensors, transformers; `make test-outside PYTHON=...` runs it.
usage: tests/outside/run.py TEMPER [CASE...]"""

import contextlib
import io
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path[:0] = [os.path.join(ROOT, "tools", "golden"), os.path.dirname(os.path.abspath(__file__))]

try:
    import rollouts
except ImportError as error:
    sys.exit(f"{sys.executable} has no {error.name}, which tests/outside/run.py needs: "
             "make test-outside PYTHON=... of one that has torch, safetensors and transformers")

SCRIPT = os.path.join(ROOT, "tools", "golden", "outside.py")
REPLAY = os.path.join(ROOT, "tests", "golden", "replay")
UPDATES, TOLERANCE, LIMIT, MOST_LINES = 3, 1e-9, 120, 80
CONFIG = f"""
run.name = "run"
run.steps = 1
run.dtype = "fp64"
run.threads = 1
run.device = "cpu"
model.path = {json.dumps(os.path.join(REPLAY, "model"))}
model.context_tokens = 64
rollout.prompts_per_step = {len(rollouts.GROUPS)}
rollout.samples_per_prompt = 4
rollout.max_prompt_tokens = 10
rollout.max_new_tokens = {rollouts.LONGEST}
train.updates_per_step = {UPDATES}
optimizer.lr = 1e-2
data.train = "none.jsonl"
"""
REWARDS = 'reward.functions = [{name = "exact"}, {name = "length", weight = 0.5, max_tokens = 8, buffer_tokens = 4}]\n'
KL = "algorithm.kl_coef=0.05"
TEACHER = "roles.teacher.path=teacher algorithm.teacher_coef=0.3"
LORA = f"lora.path={os.path.join(REPLAY, 'adapters')}"


def rows(kind):
    """Names of the rows of src/config/methods.h; of algorithms with whether they generate."""
    with open(os.path.join(ROOT, "src", "config", "methods.h")) as f:
        found = re.findall(rf'\b{kind}Traits{{"([^"]+)",\s*("|true|false)', f.read())
    assert len(found) > 3, f"no rows of {kind}Traits in src/config/methods.h"
    return [(name, value == "true") for name, value in found]


def of_names():
    for name, generates in rows("Algorithm"):
        keys = f"algorithm.name={name} "
        if not generates:
            yield name, keys + f"train.samples_per_update={rollouts.COUNT // UPDATES}", "given"
            yield f"{name}, adapters", keys + f"train.samples_per_update={rollouts.COUNT // UPDATES} {LORA}", "given"
            continue
        yield name, keys + KL + " algorithm.entropy_coef=0.01", "given"
        yield f"{name}, older samples", keys, "older"
        yield f"{name}, adapters", keys + f"{KL} {LORA}", "given"
        yield f"{name}, teacher", keys + TEACHER, "bare"


def of_corrections():
    for loss in ("ppo", "gspo"):
        for level in ("token", "sequence", "geometric"):
            for form in ("truncate", "mask"):
                for key, value in (("tis_cap", 1.02), ("importance_bounds", "[0.97,1.1]")):
                    yield (f"{loss}, importance {level} {form}, {key} {value}",
                           f"algorithm.loss={loss} algorithm.importance={level} algorithm.importance_form={form} "
                           f"algorithm.{key}={value}", "older")
    for key, value in (("tis_cap", 0), ("tis_cap", 2), ("reject_mean_k3", 0.02), ("reject_token_below", 0.85),
                       ("dual_clip", 1.05), ("ratio_clamp", 0.1), ("mask_truncated", "true")):
        yield f"{key} {value}", f"algorithm.{key}={value}", "older"
    yield "one update, older samples", "train.updates_per_step=1", "older"
    yield "dual_clip 1.05, samples of now", "algorithm.dual_clip=1.05", "given"


def of_parts():
    for name, _ in rows("Advantage"):
        yield f"advantage {name}", f"algorithm.advantage={name}", "given"
    for name, _ in rows("Loss"):
        yield f"loss {name}", f"algorithm.loss={name} {KL}", "given"
    for std in ("batch", "none"):
        yield f"advantage_std {std}", f"algorithm.advantage_std={std}", "given"
    for rule in ("zero", "verl"):
        yield f"single_group {rule}", f"algorithm.single_group={rule}", "given"
    yield "gamma", f"algorithm.name=reinforce++ algorithm.gamma=0.9 {KL}", "given"
    for mode in ("seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "token-sum"):
        yield f"aggregation {mode}", f"algorithm.aggregation={mode} {KL}", "given"
    for kind in ("k1", "abs", "k2", "k1+", "k3+"):
        yield f"kl_estimator {kind}", f"algorithm.kl_estimator={kind} {KL}", "given"
    yield "kl_in reward", f"algorithm.kl_in=reward {KL}", "given"
    yield "log-probs of its own", KL, "bare"
    yield "clipped gradients, decay", "optimizer.grad_clip=0.1 optimizer.weight_decay=0.1", "given"
    yield "two ranks", f"{KL} --local 2", "older"


def of_models():
    for file in ("given", "older", "bare"):
        yield f"teacher, {file}", f"{TEACHER} {KL}", file
        yield f"adapters, {file}", f"{LORA} {KL}", file
    yield "teacher alone", f"{TEACHER} algorithm.entropy_coef=0.01", "bare"
    yield "adapters and a teacher", f"{LORA} {TEACHER}", "bare"
    yield "adapters on two ranks", f"{LORA} {KL} --local 2", "given"


def cases():
    """Each: its name, keys, rollouts, and whether its loss is that of no other such case: what it sets is felt."""
    return [(*case, kind is of_corrections) for kind in (of_names, of_corrections, of_parts, of_models) for case in kind()]


def call(temper, folder, arguments):
    done = subprocess.run([temper, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LIMIT)
    if done.returncode != 0:
        raise RuntimeError(f"`temper {' '.join(arguments)}` ended with {done.returncode}:\n{done.stdout[-2000:]}")


def compared(temper, folder, number, name, keys, file):
    """The line of outside.py about a run, and whether all is within its tolerance."""
    run, alone = f"case-{number}", name.startswith("teacher alone")
    updates = 1 if "updates_per_step=1" in keys else UPDATES
    call(temper, folder, ["train", "alone.toml" if alone else "run.toml", f"run.name={run}", *keys.split(),
                          "--replay", f"{file}.jsonl", "--dump-gradients", f"{run}.dump"])
    call(temper, folder, ["export", "--checkpoint", f"runs/{run}", "--out", f"{run}.export", "--dtype", "fp64"])
    weights = "adapter_model.safetensors" if "lora.path" in keys else "model.safetensors"
    said = io.StringIO()
    sys.argv = [SCRIPT, f"runs/{run}", f"{run}.dump", f"{file}.jsonl", f"{run}.export/{weights}"]
    with contextlib.redirect_stdout(said), contextlib.chdir(folder):
        try:
            runpy.run_path(SCRIPT, run_name="__main__")
        except SystemExit as end:
            same = not end.code
    line = said.getvalue().strip()
    return line, same and line.startswith(f"{updates} updates")


def main():
    temper, wanted = os.path.abspath(sys.argv[1]), sys.argv[2:]
    chosen = [case for case in cases() if not wanted or any(word in case[0] for word in wanted)]
    failed, largest, losses = 0, {}, {}
    with open(SCRIPT) as f:
        if (lines := len(f.readlines())) > MOST_LINES:  # who doubts it reads it
            print(f"FAIL {SCRIPT} has {lines} lines, more than {MOST_LINES}")
            failed += 1
    with tempfile.TemporaryDirectory() as folder:
        rollouts.write(folder, os.path.join(REPLAY, "model"))
        for file, text in (("run.toml", CONFIG + REWARDS), ("alone.toml", CONFIG)):
            with open(os.path.join(folder, file), "w") as f:
                f.write(text)
        for number, (name, keys, file, own) in enumerate(chosen):
            try:
                line, same = compared(temper, folder, number, name, keys, file)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                line, same = str(error), False
            loss = line.split(" off by")[0]
            if own and losses.setdefault(loss, name) != name:
                line, same = f"{line}; the loss is that of `{losses[loss]}`: what the case sets was not felt", False
            print(f"{'ok  ' if same else 'FAIL'} {name}: {line}", flush=True)
            failed += not same
            for what, value in re.findall(r"(off by|gradients|weights) ([0-9.e+-]+)", line):
                largest[what] = max(largest.get(what, 0.0), float(value))
    print(f"{len(chosen)} cases, {failed} failed; largest differences: losses {largest.get('off by', 0):.1e}, "
          f"gradients {largest.get('gradients', 0):.1e}, weights {largest.get('weights', 0):.1e} (allowed: {TOLERANCE})")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
