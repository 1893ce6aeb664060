"""What trackers were told, read back from where they keep it: of the fakes, and of wandb and mlflow themselves."""

import glob
import json
import os
import re
import struct


def flat(tree, prefix=""):
    leaves = {}
    for key, value in tree.items():
        leaves |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return leaves


class FakeWandb:
    FINISHED = [0, 0]

    def lines(self, case):
        with open(case.env["TRACKED"]) as f:
            lines = [json.loads(line) for line in f]
        assert len({line["run"] for line in lines}) == 1, "a run that goes on is the same run"
        return lines

    def name_of(self, name):
        return name

    def steps_and_samples(self, case):
        logged = [line for line in self.lines(case) if "step" in line]
        return [line["step"] for line in logged], {line["step"]: line["samples"] for line in logged if line["samples"]}

    def metrics(self, case):
        return {line["step"]: line["metrics"] for line in self.lines(case) if "step" in line}

    def config(self, case):
        starts = [line for line in self.lines(case) if "config" in line]
        assert all(line["project"] == "temper" and line["name"] == "mine" for line in starts)
        return flat(starts[0]["config"])

    def ends(self, case):
        return [line["finish"] for line in self.lines(case) if "finish" in line][:2]


class FakeMlflow:
    FINISHED = "FINISHED"

    def lines(self, case):
        with open(case.env["TRACKED"]) as f:
            return [json.loads(line) for line in f]

    def name_of(self, name):
        return re.sub("@", "_at_", name)

    def steps_and_samples(self, case):
        lines = self.lines(case)
        assert sum("tags" in line for line in lines) == 1, "a run that goes on is the same run"
        steps = [step for line in lines for name, _, step in line.get("metrics", []) if name == "temper/step"]
        samples = {int(re.search(r"(\d+)\.jsonl", line["artifact"]).group(1)):
                   [json.loads(row) for row in line["text"].splitlines()] for line in lines if "artifact" in line}
        return steps, samples

    def metrics(self, case):
        by_step = {}
        for line in self.lines(case):
            for name, value, step in line.get("metrics", []):
                own = by_step.setdefault(step, {})
                assert name not in own, f"{name} of step {step} came twice"
                own[name] = value
        return by_step

    def config(self, case):
        return {key: json.loads(value) for line in self.lines(case) for key, value in line.get("params", {}).items()}

    def ends(self, case):
        return [line["status"] for line in self.lines(case) if "status" in line][-1]


class Wandb:
    """Folders of offline runs, one a start: a log of LevelDB's form behind 7 bytes, of protocol buffers."""
    FINISHED = [0, 0]
    BLOCK, HEAD, BEGIN = 32768, 7, 7

    def name_of(self, name):
        return name

    def payloads(self, path):
        with open(path, "rb") as f:
            data = f.read()
        assert data[:4] == b":W&B"
        at, parts = self.BEGIN, b""
        while at + self.HEAD <= len(data):
            left = self.BLOCK - at % self.BLOCK
            if left < self.HEAD:
                at += left
                continue
            _, size, kind = struct.unpack("<IHB", data[at:at + self.HEAD])
            parts += data[at + self.HEAD:at + self.HEAD + size]
            at += self.HEAD + size
            if kind in (1, 4):  # whole, last
                yield parts
                parts = b""

    def records(self, case):
        from wandb.proto import wandb_internal_pb2 as messages
        paths = sorted(glob.glob(os.path.join(case.folder, "runs", "mine", "wandb", "offline-run-*", "*.wandb")),
                       key=os.path.getmtime)
        assert len({os.path.basename(path) for path in paths}) == 1, "a run that goes on has the same id"
        for path in paths:
            for payload in self.payloads(path):
                record = messages.Record()
                record.ParseFromString(payload)
                yield os.path.dirname(path), record

    def history(self, case):
        for folder, record in self.records(case):
            if record.WhichOneof("record_type") == "history":
                values = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
                yield folder, record.history.step.num, values

    def steps_and_samples(self, case):
        steps, samples = [], {}
        for folder, step, values in self.history(case):
            steps.append(step)
            if "val/samples/path" in values:
                with open(os.path.join(folder, "files", values["val/samples/path"])) as f:
                    table = json.load(f)
                samples[step] = [dict(zip(table["columns"], row)) for row in table["data"]]
        return steps, samples

    def metrics(self, case):
        return {step: values for _, step, values in self.history(case)}

    def config(self, case):
        tree = {}
        for _, record in self.records(case):
            if record.WhichOneof("record_type") == "run":
                tree |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        return flat(tree)

    def ends(self, case):
        return [record.exit.exit_code for _, record in self.records(case) if record.WhichOneof("record_type") == "exit"][:2]


class Mlflow(FakeMlflow):
    """A store in a folder, read by the package itself."""

    def client(self, case):
        from mlflow.tracking import MlflowClient
        return MlflowClient(case.env["MLFLOW_TRACKING_URI"])

    def run(self, case):
        client = self.client(case)
        runs = client.search_runs([client.get_experiment_by_name("temper").experiment_id])
        assert len(runs) == 1, "a run that goes on is the same run"
        return runs[0]

    def steps_and_samples(self, case):
        run, client = self.run(case), self.client(case)
        steps = [mark.step for mark in client.get_metric_history(run.info.run_id, "temper/step")]
        folder, samples = run.info.artifact_uri.removeprefix("file://"), {}
        for path in glob.glob(os.path.join(folder, "samples", "step-*.jsonl")):
            with open(path) as f:
                samples[int(path[-12:-6])] = [json.loads(line) for line in f]
        return steps, samples

    def metrics(self, case):
        run, client, by_step = self.run(case), self.client(case), {}
        for name in run.data.metrics:
            for entry in client.get_metric_history(run.info.run_id, name):
                own = by_step.setdefault(entry.step, {})
                assert name not in own, f"{name} of step {entry.step} came twice"
                own[name] = entry.value
        return by_step

    def config(self, case):
        return {key: json.loads(value) for key, value in self.run(case).data.params.items()}

    def ends(self, case):
        return self.run(case).info.status
