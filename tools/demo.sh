#!/usr/bin/env bash
# `make demo`: a Qwen3-shaped model of 1M parameters learns to add two numbers below 100 from a teacher who is mostly
# wrong, then by GRPO, which rewards right sums; on two MPI ranks, CPU only. Judged before and after on problems that
# were in no training step.
set -euo pipefail
cd "$(dirname "$0")/.."
temper=build/temper
mpi=(mpirun -n 2 --bind-to none)
[ "$(nproc)" -ge 2 ] || mpi+=(--oversubscribe)
[ "$(id -u)" != 0 ] || mpi+=(--allow-run-as-root)
start=$SECONDS
slower=1; [ "$(nproc)" -ge 2 ] || slower=2
# begin PART TITLE SECONDS: about what the part takes where each rank has a core.
begin() { echo; echo "== $1  $2: about $(($3 * slower)) s   [after $((SECONDS - start)) s]"; }
show() { echo "\$ $*"; "$@"; }
train() {  # one step in ten is shown
  show "${mpi[@]}" "$temper" train "$@" 2>&1 | awk '
    /^(sample of )?step [0-9]+[\/:]/ { step = $0; sub(/^[^0-9]*/, "", step); if (step % 10 != 0) next }
    { print; fflush() }'
}
accuracy() {  # of a model folder, greedy, through the rollout engine
  "${mpi[@]}" "$temper" eval conf/demo_grpo.toml model.path="$1" |
    sed -n 's/.*"val\/heldout\/score\/mean":\([0-9.e-]*\).*/\1/p'
}
pass_of_8() {  # share of the problems that one of 8 samples at temperature 1 gets right
  "${mpi[@]}" "$temper" eval conf/demo_grpo.toml model.path="$1" validation.samples_per_prompt=8 \
    validation.rollout.temperature=1 | sed -n 's/.*"val\/heldout\/pass@8":\([0-9.e-]*\).*/\1/p'
}
answers() {  # of a model folder to the first held-out problems
  "$temper" generate --model "$1" --prompts runs/demo/data/samples.jsonl rollout.temperature=0 \
    rollout.max_new_tokens=4 2> /dev/null | sed -n 's/.*"text":"\([^"]*\)".*/\1/p'
}

begin 1/5 "data and a model with random weights" 1
rm -rf runs/demo runs/demo-sft runs/demo-grpo
tools/demo_data.sh runs/demo/data
head -6 runs/demo/data/heldout.jsonl > runs/demo/data/samples.jsonl
head -5 runs/demo/data/teacher.jsonl
show "$temper" init --config conf/demo/config.json --tokenizer conf/demo --out runs/demo/model --seed 1

begin 2/5 "warm start: supervised fine-tuning on a careless teacher (2 of 5 answers right, 3 ten too high)" 50
train conf/demo_sft.toml
warm=$(ls -d runs/demo-sft/export/step-*)

begin 3/5 "accuracy before GRPO, on 512 held-out problems" 2
before=$(accuracy "$warm")
half_known=$(pass_of_8 "$warm")
echo "$before; one of 8 samples is right for $half_known of them: GRPO sharpens what the model half knows"

begin 4/5 "GRPO: 8 samples a problem, reward 1 for the right sum" 35
train conf/demo_grpo.toml model.path="$warm"
model=$(ls -d runs/demo-grpo/export/step-*)

begin 5/5 "accuracy after GRPO" 2
after=$(accuracy "$model")

echo
printf '%-34s %-13s %s\n' "" "before GRPO" "after GRPO"
printf '%-34s %-13s %s\n' "held-out accuracy (512, greedy)" "$before" "$after"
paste <(sed 's/.*"prompt":"\([^"]*\)","answer":"\([^"]*\)".*/\1  (\2)/' runs/demo/data/samples.jsonl) \
  <(answers "$warm") <(answers "$model") | awk -F '\t' '{ printf "%-34s %-13s %s\n", "  " $1, $2, $3 }'
cat <<TEXT

page       runs/demo-grpo/report.html (for a browser); $temper report runs/demo-sft runs/demo-grpo: both beside each other
metrics    runs/demo-grpo/metrics.jsonl, tensorboard/ beside it
rollouts   runs/demo-grpo/rollouts/
model      $model (a Hugging Face folder)
try it     $temper generate --model $model --prompt "38+47=" rollout.max_new_tokens=4 rollout.temperature=0
control    make demo-control: the same with shuffled answers, which teaches nothing
next       README.md, "Your own model and data"; $temper help train

TEXT
awk -v a="$before" -v b="$after" 'BEGIN { exit !(a < 0.5 && b > 0.95) }' || {
  echo "demo: expected below 0.5 before GRPO and above 0.95 after it" >&2
  status=1
}
echo "demo: held-out accuracy $before -> $after in $((SECONDS - start)) s"
exit "${status:-0}"
