"""Whole GRPO runs of a Qwen3 shape with random weights in the layouts of several GPUs of one host: what is promised of
their bits (rollouts of step 1 in any layout, the whole run for one layout of the trainer, log-probs with a lag as `score`
gives them, resuming), seconds of a step and of its phases. Prints Markdown for tests/bench/RESULTS.md; exit status 1 if a
promise is broken. Runs are killed when their steps are done, so that none waits for a checkpoint at its end.
usage: layout_runs.py SHAPE [--layers N] [--gpus N] [--steps N] [--only NAME,...] [--first NAME] [--resume NAME,...] [--score]
                      [--random] [--memory] [--out DIR] [--limit SECONDS] [section.key=value ...]
  SHAPE     tiny, 0.6b, 1.7b, 8b, 32b; with experts, which have layouts of their own: tiny-moe, 30b-a3b
  --layers  of the shape's, for GPUs of less memory
  --only    layouts; the first one and the layout that a run has to be equal to come with it
  --first   whose rollouts of step 1 the others have to have: one, or another one where the model needs several GPUs
  --resume  these layouts are killed after the last step and go on from a checkpoint before it
  --score   log-probs of the run that is a step ahead, beside `score` with the exported weights of their version
  --random  every rank makes its weights in memory, where a folder of them would take long; without --score
  --memory  what a rank of each phase holds is within 5 % of what `check` says: responses are as long as they may be, so that
            batches are as full as in the plan"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
TEMPER = REPOSITORY / "build/temper"
WORKSPACE = 33 << 20  # of products: in the plan's "context", and counted by a run
SHAPES = {"tiny": dict(hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
                       head_dim=16, tie_word_embeddings=True, vocab_size=6400, torch_dtype="float32"),
          "0.6b": dict(hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
                       tie_word_embeddings=True),
          "1.7b": dict(hidden_size=2048, intermediate_size=6144, num_hidden_layers=28, num_attention_heads=16,
                       tie_word_embeddings=True),
          "8b": dict(hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32,
                     tie_word_embeddings=False),
          "32b": dict(hidden_size=5120, intermediate_size=25600, num_hidden_layers=64, num_attention_heads=64,
                      tie_word_embeddings=False)}
EXPERTS = dict(architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", num_experts_per_tok=8, norm_topk_prob=True,
               tie_word_embeddings=False)
SHAPES |= {"tiny-moe": SHAPES["tiny"] | EXPERTS | dict(moe_intermediate_size=32, num_experts=16, num_experts_per_tok=4),
           "30b-a3b": EXPERTS | dict(hidden_size=2048, intermediate_size=6144, moe_intermediate_size=768, num_experts=128,
                                     num_hidden_layers=48, num_attention_heads=32, num_key_value_heads=4)}
COMMON = dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3", num_key_value_heads=8, head_dim=128,
              vocab_size=151936, max_position_embeddings=40960, rms_norm_eps=1e-6, rope_theta=1e6, eos_token_id=2,
              torch_dtype="bfloat16")
CONFIG = """
run.name = "x"
run.steps = 1000
model.path = "model"
data.train = "data.jsonl"
data.chat = false
reward.functions = [{name = "length", max_tokens = 64, buffer_tokens = 60}]
algorithm.entropy_coef = 0.001
model.context_tokens = 1024
optimizer.lr = 1e-6
"""
RAGGED = """
rollout.prompts_per_step = 8
rollout.samples_per_prompt = 4
rollout.max_new_tokens = 64
rollout.stop = ["th"]
"""
FULL = """
rollout.prompts_per_step = 16
rollout.samples_per_prompt = 8
rollout.max_new_tokens = 256
rollout.min_new_tokens = 256
rollout.ignore_eos = true
train.max_tokens_per_microbatch = 4096
"""


def layouts(n, experts=False):
    """name -> ranks, keys, the run that it has to be equal to as a whole"""
    apart = f"roles.rollout.ranks='0' roles.rollout.tp=1 roles.rollout.pp=1 roles.trainer.ranks='1-{n - 1}'"
    trainer = f"roles.trainer.ranks='0-{n - 2}' roles.rollout.ranks='{n - 1}'"
    return layouts_of_axes(n) | (layouts_of_pairs(n // 2) if n % 4 == 0 else {}) | (layouts_of_experts(n) if experts else {}) | {
            "apart": (n, apart, "one" if n == 2 else None),
            "apart, reversed": (n, trainer, "apart"),
            "a step ahead": (n, apart + " run.max_policy_lag=1", None)}


def layouts_of_axes(n):
    return {"one": (1, "", None),
            "dp": (n, "", None),
            "dp again": (n, "", "dp"),
            "zero 2": (n, "roles.trainer.zero=2", None),
            "zero 3": (n, "roles.trainer.zero=3", None),
            "tp": (n, f"roles.trainer.tp={n}", None),
            "tp, rollouts whole": (n, f"roles.trainer.tp={n} roles.rollout.tp=1", "tp"),
            "dp, rollouts in tp": (n, f"roles.rollout.tp={n}", "dp"),
            "pp": (n, f"roles.trainer.pp={n} roles.rollout.pp={n}", None),
            "pp, rollouts whole": (n, f"roles.trainer.pp={n} roles.rollout.pp=1", "pp"),
            "cp": (n, f"roles.trainer.cp={n}", None)}


def layouts_of_experts(n):
    """Over ranks that have other tokens; absent, `ep` is tp."""
    ep = f"roles.trainer.ep={n}"
    return {"ep": (n, ep, None),
            "ep zero 2": (n, ep + " roles.trainer.zero=2", None),
            "ep zero 3": (n, ep + " roles.trainer.zero=3", None),
            "ep with rollouts in tp": (n, ep + f" roles.rollout.tp={n}", "ep"),
            "ep zero 2 with rollouts in tp": (n, ep + f" roles.trainer.zero=2 roles.rollout.tp={n}", None),
            "tp with whole experts": (n, f"roles.trainer.tp={n} roles.trainer.ep=1", None)}


def layouts_of_pairs(h):
    """Two axes of 2 and half of the GPUs each; roles on some of the ranks of others, or on half of them."""
    n = 2 * h
    trainer = lambda keys: " ".join(f"roles.trainer.{key}" for key in keys.split())
    halves = f"roles.rollout.ranks='0-{h - 1}' roles.rollout.tp={h} roles.trainer.ranks='{h}-{n - 1}'"
    return {"tp dp": (n, trainer(f"tp={h}"), None),
            "tp dp, zero 3": (n, trainer(f"tp={h} zero=3"), None),
            "tp pp": (n, trainer(f"tp={h} pp=2"), None),
            "tp pp, rollouts in tp": (n, trainer(f"tp={h} pp=2") + f" roles.rollout.tp={n} roles.rollout.pp=1", "tp pp"),
            "tp cp": (n, trainer(f"tp={h} cp=2"), None),
            "tp cp, rollouts on three": (n, trainer(f"tp={h} cp=2") + " roles.rollout.ranks='0-2' roles.rollout.tp=1", "tp cp"),
            "pp dp": (n, trainer("pp=2"), None),
            "pp dp, rollouts in tp": (n, trainer("pp=2") + f" roles.rollout.tp={n} roles.rollout.pp=1", "pp dp"),
            "pp vpp dp, zero 2": (n, trainer("pp=2 vpp=2 zero=2"), None),
            "pp cp": (n, trainer("pp=2 cp=2"), None),
            "cp dp, zero 3": (n, trainer("cp=2 zero=3"), None),
            "tp, rollouts in pp dp": (n, trainer(f"tp={n}") + " roles.rollout.tp=1 roles.rollout.pp=2", "tp"),
            "halves": (n, halves, None),
            "halves, a step ahead": (n, halves + " run.max_policy_lag=1", None)}


class Runs:
    def __init__(self, args):
        self.args, self.out = args, pathlib.Path(args.out).resolve()
        self.seen, self.broken = {}, 0
        self.out.mkdir(parents=True, exist_ok=True)
        shape = json.dumps(COMMON | SHAPES[args.shape] | (dict(num_hidden_layers=args.layers) if args.layers else {}))
        tokenizer = REPOSITORY / "tests/golden/tokenizer/minimind"
        path = self.out / "config.json"
        if path.exists() and path.read_text() != shape:
            sys.exit(f"{self.out} holds runs of another shape: remove it, or name another --out")
        path.write_text(shape)
        (self.out / "run.toml").write_text(CONFIG + (FULL if args.memory else RAGGED)
                                           + ('model.init = "random"\n' if args.random else ""))
        (self.out / "data.jsonl").write_text("".join(
            json.dumps(dict(prompt=f"What is {i} plus {3 * i}?", answer=str(4 * i))) + "\n" for i in range(256)))
        if args.random and not (self.out / "model").exists():
            shutil.copytree(tokenizer, self.out / "model")
            (self.out / "model/config.json").write_text(shape)
        if not (self.out / "model/config.json").exists():
            subprocess.run([TEMPER, "init", "--config", "config.json", "--out", "model", "--seed", "1", "--tokenizer", tokenizer],
                           cwd=self.out, check=True, stderr=subprocess.DEVNULL)

    def metrics(self, name):
        path = self.out / "runs" / name / "metrics.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def rollouts(self, name, step):
        return (self.out / "runs" / name / f"rollouts/step-{step:06}.jsonl").read_bytes()

    def read(self, name):
        steps = range(1, self.args.steps + 1)
        kept = [{k: v for k, v in line.items() if not k.startswith(("timing_s/", "perf/", "rollout/"))}
                for line in self.metrics(name)[:self.args.steps]]
        return kept, [self.rollouts(name, step) for step in steps]

    def own_keys(self):
        return " ".join(f"'{key}'" for key in self.args.keys)

    def start(self, name, ranks, keys):
        """Until its steps are done, and not longer. The words of an error, or None."""
        command = (f"mpirun -n {ranks} --oversubscribe --bind-to none {TEMPER} train run.toml run.name='{name}' {keys} "
                   + self.own_keys())
        log = self.out / f"{name}.log"
        with log.open("w") as stream:
            job = subprocess.Popen(command, shell=True, cwd=self.out, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
                                   start_new_session=True)
            try:
                finished = self.wait_for_steps(job, name)
            finally:
                self.kill_ranks()
                try:
                    job.wait(30)
                except subprocess.TimeoutExpired:
                    os.killpg(job.pid, signal.SIGKILL)
        if finished:
            return None
        return " / ".join(line.strip()[:160] for line in log.read_text(errors="replace").split("\n") if line.strip())[-700:]

    def wait_for_steps(self, job, name):
        deadline = time.time() + self.args.limit
        before = len(self.metrics(name))
        started = before < self.args.steps  # a resumed run first takes back what came after its checkpoint
        while job.poll() is None and time.time() < deadline:
            done = len(self.metrics(name))
            started = started or done < before
            if started and done >= self.args.steps:
                break
            time.sleep(0.05)
        return started and len(self.metrics(name)) >= self.args.steps

    def kill_ranks(self):
        """Of this folder: other runs may be on the same machine."""
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if (process / "cwd").resolve() == self.out and (process / "exe").resolve() == TEMPER.resolve():
                    os.kill(int(process.name), signal.SIGKILL)
            except OSError:  # it has ended, or is another user's
                pass

    def say(self, name, promise, kept):
        self.broken += not kept
        print(f"{'ok  ' if kept else 'BAD '} {name}: {promise}", flush=True)

    def row(self, name):
        lines = self.metrics(name)[1:self.args.steps] or self.metrics(name)
        mean = lambda key: sum(line.get(key, 0) for line in lines) / len(lines)
        ranks = self.table[name][0]
        idle = mean("perf/rollout_idle_share")
        step, gen, update, sync = (mean("timing_s/" + key) for key in ("step", "gen", "update_actor", "sync_weights"))
        print(f"| {name} | {gen:.2f} s ({100 * gen / step:.0f} %) | {update:.2f} s ({100 * update / step:.0f} %) | "
              f"{sync * 1e3:.1f} ms | {step:.2f} s | {100 * idle:.0f} % | {mean('perf/total_num_tokens') / step / ranks:.0f} | "
              f"{100 * mean('perf/mfu'):.0f} % | {max(l.get('perf/peak_gb/train/device', 0) for l in lines):.1f} GiB |", flush=True)

    def planned(self, ranks, keys):
        """phase -> GiB of a GPU, of the rank that has most, as the metrics of a run count: without what the driver, trials of
        products and exchanges take, but with the workspace of products."""
        command = f"{TEMPER} check run.toml {keys} {self.own_keys()} --ranks {ranks} --gpus-per-node {ranks} --json"
        said = subprocess.run(command, shell=True, cwd=self.out, check=True, stdout=subprocess.PIPE).stdout
        most = {}
        for row in json.loads(said)["memory"]:
            parts = row["parts"]
            others = parts.get("context", WORKSPACE) - WORKSPACE + parts.get("product_trials", 0) + parts.get("exchanges", 0)
            most[row["phase"]] = max(most.get(row["phase"], 0), (row["device_bytes"] - others) / 2**30)
        return most

    def compare_memory(self, name, ranks, keys):
        lines = self.metrics(name)[:self.args.steps]
        for phase, planned in self.planned(ranks, keys).items():
            taken = [line[f"perf/peak_gb/{phase}/device"] for line in lines if f"perf/peak_gb/{phase}/device" in line]
            if taken and planned > 0:
                self.say(name, f"memory of {phase}: {max(taken):.2f} GiB taken, {planned:.2f} planned",
                         abs(max(taken) - planned) <= max(0.05 * planned, 1 / 32))

    def run(self, name):
        ranks, keys, like = self.table[name]
        if self.args.score and name == "a step ahead":
            keys += " checkpoint.export_hf_every=1"
        if name in self.args.resume:
            keys += f" checkpoint.every={self.args.steps - 1}"
        shutil.rmtree(self.out / "runs" / name, ignore_errors=True)
        error = self.start(name, ranks, keys)
        if error:
            self.say(name, f"did not do its steps: {error}", False)
            return
        self.seen[name] = self.read(name)
        difference = max(line.get("actor/rollout_logprob_diff_max", 0) for line in self.metrics(name)[:self.args.steps])
        if "ahead" not in name:
            self.say(name, f"rollout_logprob_diff_max is 0 in {self.args.steps} steps ({difference})", difference == 0)
        if self.args.memory:
            self.compare_memory(name, ranks, keys)
        first = self.args.first
        if first in self.seen and name != first:
            self.say(name, f"rollouts of step 1 as '{first}'", self.seen[name][1][0] == self.seen[first][1][0])
        if like in self.seen:
            self.say(name, f"the whole run as '{like}'", self.seen[name] == self.seen[like])
        if name in self.args.resume:
            # Where steps are fast, the kill comes after a checkpoint behind the last step that is compared.
            for later in (self.out / "runs" / name / "checkpoints").glob("step-*"):
                if int(later.name[5:11]) >= self.args.steps:
                    shutil.rmtree(later)
            error = self.start(name, ranks, keys)
            self.say(name, f"killed and resumed, the same run {error or ''}", not error and self.read(name) == self.seen[name])
        if self.args.score and name == "a step ahead":
            self.compare_score(name)
        if not self.args.resume and not self.args.score:
            shutil.rmtree(self.out / "runs" / name / "checkpoints", ignore_errors=True)

    def compare_score(self, name):
        lines = [json.loads(l) for step in range(1, self.args.steps + 1) for l in self.rollouts(name, step).splitlines()]
        versions = sorted({line["policy_version"][0] for line in lines})
        compared = different = 0
        for version in versions:
            mine = [l for l in lines if l["policy_version"][0] == version == l["policy_version"][1]]
            (self.out / "score.jsonl").write_text("".join(
                json.dumps(dict(tokens=l["prompt_tokens"] + l["response_tokens"])) + "\n" for l in mine))
            model = "model" if version == 0 else f"runs/{name}/export/step-{version:06}"
            said = subprocess.run([TEMPER, "score", "--model", model, "--input", "score.jsonl"], cwd=self.out, check=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.splitlines()
            for line, text in zip(mine, said, strict=True):
                scored = json.loads(text)["logprobs"][-len(line["logprobs"]):]
                compared += len(scored)
                different += sum(a != b for a, b in zip(line["logprobs"], scored, strict=True))
        self.say(name, f"{compared} log-probs of versions {versions}, {different} differ from `score`", compared > 0 == different)

    def all(self):
        self.table = layouts(self.args.gpus, "num_experts" in SHAPES[self.args.shape])
        names = [n for n in self.table if not self.args.only or n in self.args.only]
        for needed in [self.table[n][2] for n in names] + [self.args.first]:
            if needed and needed not in names:
                names.insert(0, needed)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
        try:
            for name in sorted(names, key=lambda n: (n != self.args.first, list(self.table).index(n))):
                self.run(name)
        finally:
            self.print_table()
        return self.broken > 0

    def print_table(self):
        print(f"\n{self.args.shape}, {self.args.gpus} GPUs, steps 2 to {self.args.steps}:\n\n"
              "| layout | generate | update | weights | step | idle in generation | tokens/s/GPU | MFU | peak of the update |\n"
              "|---|---|---|---|---|---|---|---|---|")
        for name in self.seen:
            self.row(name)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--first", choices=layouts(4, experts=True), default="one", metavar="NAME")
    parser.add_argument("--resume", type=lambda text: text.split(","), default=[])
    for flag in ("--score", "--random", "--memory"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--out", default="runs/layouts")
    parser.add_argument("--limit", type=float, default=180)
    parser.add_argument("keys", nargs="*")
    args = parser.parse_intermixed_args()
    sys.exit(Runs(args).all())


main()
