#!/usr/bin/env python3
"""A run on Weights & Biases.

    [log]
    command = ["python3", "tools/trackers/wandb.py", "--project", "my-project"]

It needs `pip install wandb` and `wandb login` (or WANDB_API_KEY; WANDB_MODE=offline keeps all in the run folder). Without
--project the project is called temper. A run that goes on is the same run there, and gets the steps that it lacks.
"""
import argparse
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path = [p for p in sys.path if os.path.abspath(p or ".") != HERE]  # this file has the name of the package


def load():
    try:
        import wandb
    except ImportError:
        sys.exit("tools/trackers/wandb.py: no package wandb in this python: pip install wandb")
    return wandb


def nested(flat):
    tree = {}
    for key, value in flat.items():
        *sections, name = key.split(".")
        at = tree
        for section in sections:
            at = at.setdefault(section, {})
        at[name] = value
    return tree


class Tracker:
    def __init__(self, message, options):
        self.wandb = load()
        self.run = self.wandb.init(project=options.project, entity=options.entity, id=message["id"], name=message["name"],
                                   dir=message["folder"], config=nested(message["config"]), resume="allow")

    def has(self, told):
        if self.run.offline:  # it knows nothing of what folders of earlier starts hold
            return told
        return self.run.step - 1 if self.run.resumed else -1

    def log(self, step, metrics, samples):
        data = {name: value for name, value in metrics.items() if value is not None}
        columns = ["set", "prompt", "response", "answer", "reward"]
        if samples:
            rows = [[str(sample.get(name, "")) for name in columns] for sample in samples]
            data["val/samples"] = self.wandb.Table(columns=columns, data=rows)
        self.run.log(data, step=step, commit=True)

    def finish(self, finished):
        self.run.finish(exit_code=0 if finished else 75)
        self.wandb.teardown()  # waits for the process that writes its files


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--project", default="temper")
    parser.add_argument("--entity")
    options = parser.parse_args()
    answers = os.dup(1)  # open until the process ends, when the package has written all: who closes it is taken for done
    os.dup2(2, 1)  # what the package prints goes to stderr: stdout holds answers alone

    def answer(step):
        os.write(answers, (json.dumps({"step": step}) + "\n").encode())

    tracker, samples = None, []
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "run":
            tracker = Tracker(message, options)
            answer(tracker.has(message["has"]))
        elif message["type"] == "sample":
            samples.append(message)
        elif message["type"] == "metrics":
            tracker.log(message["step"], message["metrics"], samples)
            samples = []
            answer(message["step"])
        elif message["type"] == "end":
            tracker.finish(message["finished"])


if __name__ == "__main__":
    main()
