#!/usr/bin/env python3
"""A run in MLflow.

    [log]
    command = ["python3", "tools/trackers/mlflow.py", "--experiment", "my-experiment"]

It needs `pip install mlflow`; MLFLOW_TRACKING_URI says where the server is (without it: where the package says, in the
working folder). Without --experiment the experiment is called temper. A run that goes on is the same run there, and gets the steps
that it lacks. MLflow takes no @ in names: pass@4 is pass_at_4 there.
"""
import argparse
import json
import os
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path = [p for p in sys.path if os.path.abspath(p or ".") != HERE]  # this file has the name of the package

MARK = "temper/step"  # comes with the last metrics of each step, so that it says which steps are there
MOST_METRICS, MOST_PARAMS, MOST_VALUE = 900, 100, 500


def load():
    try:
        import mlflow
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient
    except ImportError:
        sys.exit("tools/trackers/mlflow.py: no package mlflow in this python: pip install mlflow")
    return mlflow, MlflowClient, Metric, Param


def name_of(metric):
    return re.sub(r"[^0-9A-Za-z_\-. :/]", "_", metric.replace("@", "_at_"))


class Tracker:
    def __init__(self, message, options):
        _, client, self.metric, param = load()
        self.client = client()
        experiment = self.client.get_experiment_by_name(options.experiment)
        number = experiment.experiment_id if experiment else self.client.create_experiment(options.experiment)
        known = self.client.search_runs([number], f"tags.`temper.id` = '{message['id']}'")
        if known:
            self.run = known[0].info.run_id
            self.client.set_terminated(self.run, "RUNNING")
            return
        tags = {"temper.id": message["id"], "temper.folder": message["folder"]}
        self.run = self.client.create_run(number, tags=tags, run_name=message["name"]).info.run_id
        params = [param(key, json.dumps(value)[:MOST_VALUE]) for key, value in message["config"].items()]
        for at in range(0, len(params), MOST_PARAMS):
            self.client.log_batch(self.run, params=params[at:at + MOST_PARAMS])

    def has(self):
        return max((mark.step for mark in self.client.get_metric_history(self.run, MARK)), default=-1)

    def log(self, step, metrics, samples):
        if samples:
            text = "".join(json.dumps(sample) + "\n" for sample in samples)
            self.client.log_text(self.run, text, f"samples/step-{step:06d}.jsonl")
        now = int(1000 * time.time())
        values = [self.metric(name_of(name), value, now, step) for name, value in metrics.items() if value is not None]
        values.append(self.metric(MARK, step, now, step))
        for at in range(0, len(values), MOST_METRICS):
            self.client.log_batch(self.run, metrics=values[at:at + MOST_METRICS])

    def finish(self, finished):
        self.client.set_terminated(self.run, "FINISHED" if finished else "KILLED")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--experiment", default="temper")
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
            answer(tracker.has())
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
