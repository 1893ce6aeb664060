#!/usr/bin/env python3
"""tools/trackers/wandb.py and mlflow.py in runs, with the fakes beside this file, and with the packages themselves where
PYTHON has them (wandb offline, mlflow with a folder): config, metrics of each step once, samples; a run that goes on, one
that was set back by a crash, and one whose Python lacks the package. `make test-trackers PYTHON=...` runs it.
usage: tests/trackers/run.py TEMPER"""

import glob
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import stores

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LIMIT = 300
MODEL = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 32, "intermediate_size": 64,
         "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 6400,
         "max_position_embeddings": 128, "tie_word_embeddings": True, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
         "initializer_range": 0.2, "eos_token_id": 2}
CONFIG = """
run.threads = 1
run.device = "cpu"
model.path = "model"
optimizer.lr = 0.003
optimizer.schedule = "constant"
rollout.prompts_per_step = 2
rollout.samples_per_prompt = 2
rollout.max_new_tokens = 4
reward.functions = ["arithmetic"]
data.train = "data.jsonl"
checkpoint.every = 2
checkpoint.keep = 9
validation.at_start = true
validation.every = 4
validation.data = [{name = "held", path = "data.jsonl", samples_per_prompt = 2}]
log.command_seconds = 120
"""
LINES, TRIED = 4, (0, 3, 4, 6, 8)  # at the start, every 4 steps, at the end of each run


def check(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: {found!r}, expected {wanted!r}")


class Case:
    """A folder with a model and data, and an environment."""

    def __init__(self, temper, folder, script, env):
        self.temper, self.folder = temper, folder
        self.command = [sys.executable, os.path.join(ROOT, "tools", "trackers", script)]
        self.env = dict(os.environ, TRACKED=os.path.join(folder, "tracked.jsonl"), PYTHONUNBUFFERED="1", **env)
        self.write("config.json", json.dumps(MODEL))
        self.write("run.toml", CONFIG)
        self.write("data.jsonl", "".join(json.dumps({"prompt": f"What is {i} plus {i}?", "answer": str(2 * i)}) + "\n"
                                         for i in range(LINES)))
        self.call("init", "--config", "config.json", "--out", "model", "--tokenizer",
                  os.path.join(ROOT, "tests", "golden", "tokenizer", "minimind"))

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w") as f:
            f.write(text)

    def call(self, *arguments):
        done = subprocess.run([self.temper, *arguments], cwd=self.folder, env=self.env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
        if done.returncode != 0:
            raise AssertionError(f"temper {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout[-3000:]}")
        return done.stdout

    def train(self, run, steps, *keys, tracked=True):
        command = [f"log.command={json.dumps(self.command)}"] if tracked else []
        return self.call("train", "run.toml", f"run.name={run}", f"run.steps={steps}", *command, *keys)

    def metrics(self, run):
        with open(os.path.join(self.folder, "runs", run, "metrics.jsonl")) as f:
            return {line["step"]: line for line in map(json.loads, f)}

    def crash_after(self, run, step):
        """Leaves no checkpoint of later steps, as a machine that died."""
        for path in glob.glob(os.path.join(self.folder, "runs", run, "checkpoints", "step-*")):
            if int(path[-6:]) > step:
                shutil.rmtree(path)


def goes_on(case, store):
    """Steps 1 to 3 without a tracker, then to 6 with one, then from 4 to 8 after a crash."""
    case.train("mine", 3, tracked=False)
    case.train("mine", 6)
    steps, _ = store.steps_and_samples(case)
    check("steps of a tracker that starts late", steps, list(range(7)))
    case.crash_after("mine", 4)
    case.train("mine", 8)
    steps, samples = store.steps_and_samples(case)
    check("steps across a crash", steps, list(range(9)))
    check("samples by step", {step: len(rows) for step, rows in samples.items()}, {step: 2 * LINES for step in TRIED})
    row = samples[0][0]
    check("the set of a sample", row["set"], "held")
    check("what a sample has", "plus" in row["prompt"] and row["response"] != "" and row["answer"] != "", True)
    wanted = case.metrics("mine")
    logged = store.metrics(case)
    for step, line in wanted.items():
        for name, value in line.items():
            own = store.name_of(name)
            if name == "step" or value is None or name.startswith(("timing_s/", "perf/")):  # steps made again have others
                continue
            if own not in logged[step]:
                raise AssertionError(f"step {step} lacks {name}")
            check(f"{name} of step {step}", logged[step][own], value)
    config = store.config(case)
    check("optimizer.lr", float(config["optimizer.lr"]), 0.003)
    check("the name of the model's folder", "model" in str(config["model.path"]), True)
    check("how it ended", store.ends(case), store.FINISHED)


def answers_alone(case, store):
    """The same again of a run that is over: nothing is told twice."""
    before = store.steps_and_samples(case)
    case.train("mine", 8)
    check("steps of a run that was over", store.steps_and_samples(case)[0], before[0])


def lacks_package(case, script, package):
    """A Python without the package: it says so, and the run has all of its steps."""
    absent = os.path.join(case.folder, "absent")
    os.makedirs(absent)
    with open(os.path.join(absent, package + ".py"), "w") as f:
        f.write("raise ImportError\n")
    case.env["PYTHONPATH"] = absent
    said = case.train("bare", 4, "log.command_seconds=4")
    check("steps of the run", sorted(case.metrics("bare")), list(range(5)))
    logs = said + "".join(open(path, errors="replace").read()
                          for path in glob.glob(os.path.join(case.folder, "runs", "bare", "logs", "*")))
    wanted = f"tools/trackers/{script}: no package {package} in this python: pip install {package}"
    if wanted not in logs:
        raise AssertionError(f"nobody said `{wanted}`:\n{logs[-2000:]}")
    died = sum(line.get("perf/tracker_died", 0) for line in case.metrics("bare").values())
    check("that it died was counted", died > 0, True)


def tried(name, temper, script, env, story):
    """Whether it went well, told in a line."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            story(Case(temper, folder, script, {key: value.replace("FOLDER", folder) for key, value in env.items()}))
        except Exception as error:  # one that cannot be read back, too
            print(f"FAIL {name}: {type(error).__name__}: {error}", flush=True)
            return False
    print(f"ok   {name}", flush=True)
    return True


def has(package):
    return importlib.util.find_spec(package) is not None


def main():
    temper = os.path.abspath(sys.argv[1])
    fakes, results, absent = os.path.join(HERE, "fakes"), [], []

    def whole(store):
        def story(case):
            goes_on(case, store)
            answers_alone(case, store)
        return story

    results.append(tried("wandb, a fake", temper, "wandb.py", {"PYTHONPATH": fakes}, whole(stores.FakeWandb())))
    results.append(tried("wandb, a fake without a server", temper, "wandb.py", {"PYTHONPATH": fakes, "WANDB_MODE": "offline"},
                         whole(stores.FakeWandb())))
    results.append(tried("mlflow, a fake", temper, "mlflow.py", {"PYTHONPATH": fakes}, whole(stores.FakeMlflow())))
    for script in ("wandb.py", "mlflow.py"):
        package = script[:-3]
        results.append(tried(f"{package} is not there", temper, script, {},
                             lambda case, script=script, package=package: lacks_package(case, script, package)))
    if has("wandb"):
        results.append(tried("wandb itself, offline", temper, "wandb.py", {"WANDB_MODE": "offline", "WANDB_SILENT": "true"},
                             whole(stores.Wandb())))
    else:
        absent.append("wandb")
    if has("mlflow"):
        env = {"MLFLOW_TRACKING_URI": "file://FOLDER/mlruns", "MLFLOW_ALLOW_FILE_STORE": "true"}
        os.environ |= {"MLFLOW_ALLOW_FILE_STORE": "true"}
        results.append(tried("mlflow itself, in a folder", temper, "mlflow.py", env, whole(stores.Mlflow())))
    else:
        absent.append("mlflow")
    for package in absent:
        print(f"absent {package}: {sys.executable} has it not (pip install {package})")
    print(f"{len(results)} cases, {results.count(False)} failed, {len(absent)} packages were not there")
    return 1 if False in results else 0


if __name__ == "__main__":
    sys.exit(main())
