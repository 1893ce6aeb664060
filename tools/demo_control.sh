#!/usr/bin/env bash
# `make demo-control`: the GRPO of `make demo`, from the same warm start, with the answer of another problem for each.
# What the demo learns then comes from its reward: here nothing is to be learned.
set -euo pipefail
cd "$(dirname "$0")/.."
temper=build/temper
warm=$(ls -d runs/demo-sft/export/step-* 2> /dev/null) || { echo "demo-control: run \`make demo\` first" >&2; exit 1; }
mpi=(mpirun -n 2 --bind-to none)
[ "$(nproc)" -ge 2 ] || mpi+=(--oversubscribe)
[ "$(id -u)" != 0 ] || mpi+=(--allow-run-as-root)
accuracy() {  # of a model folder, greedy
  "${mpi[@]}" "$temper" eval conf/demo_grpo.toml model.path="$1" |
    sed -n 's/.*"val\/heldout\/score\/mean":\([0-9.e-]*\).*/\1/p'
}

data=runs/demo/data/train.jsonl shuffled=runs/demo/data/shuffled.jsonl
paste -d '' <(sed 's/"answer".*//' "$data") \
  <({ tail -n +2 "$data"; head -1 "$data"; } | sed 's/.*\("answer"\)/\1/') > "$shuffled"
head -3 "$shuffled"
rm -rf runs/demo-control
before=$(accuracy "$warm")
"${mpi[@]}" "$temper" train conf/demo_grpo.toml model.path="$warm" run.name=demo-control data.train="$shuffled" \
  log.samples_per_step=0
after=$(accuracy "$(ls -d runs/demo-control/export/step-*)")
echo "demo-control: held-out accuracy $before -> $after with shuffled answers"
awk -v b="$before" -v a="$after" 'BEGIN { exit !(a < b + 0.1) }' || {
  echo "demo-control: expected no gain" >&2
  exit 1
}
