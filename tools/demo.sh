#!/usr/bin/env bash
# `make demo`: a tiny Qwen3-shaped model learns to add two numbers below 100, first by a short supervised warm start,
# then by GRPO on two MPI ranks; judged before and after on problems that were in no training step. CPU only.
set -eu
temper=build/temper
run="mpirun -n 2 --oversubscribe --bind-to none"
[ "$(id -u)" = 0 ] && run="$run --allow-run-as-root"
start=$SECONDS
score() { sed -n 's/.*"val\/heldout\/score\/mean":\([0-9.e-]*\).*/\1/p'; }

rm -rf runs/demo runs/demo-sft runs/demo-grpo
tools/demo_data.sh runs/demo/data
$temper init --config conf/demo/config.json --tokenizer conf/demo --out runs/demo/model --seed 1

echo "== 1/3  warm start: supervised fine-tuning"
$run $temper train conf/demo_sft.toml
echo "== 2/3  accuracy on 512 held-out problems (greedy, through the rollout engine)"
warm=$(ls -d runs/demo-sft/export/step-*)
before=$($run $temper eval conf/demo_grpo.toml model.path="$warm" | score)
echo "held-out accuracy after the warm start: $before"
echo "== 3/3  GRPO"
$run $temper train conf/demo_grpo.toml model.path="$warm"
model=$(ls -d runs/demo-grpo/export/step-*)
after=$($run $temper eval conf/demo_grpo.toml model.path="$model" | score)

echo
echo "                     before GRPO   after GRPO"
printf "held-out accuracy    %-13s %s\n\n" "$before" "$after"
echo "samples after GRPO:"
for sum in 7+5= 38+47= 99+64=; do
  printf '  %s' "$sum"
  $temper generate --model "$model" --prompt "$sum" rollout.temperature=0 rollout.max_new_tokens=4 |
    sed -n 's/.*"text":"\([^"]*\)".*/\1/p'
done
cat <<TEXT

metrics    runs/demo-grpo/metrics.jsonl   (and tensorboard/ beside it)
rollouts   runs/demo-grpo/rollouts/
model      $model   (a Hugging Face folder)
next       build/temper help train;  README.md, "Your own model and data"
TEXT
echo "demo: held-out accuracy $before -> $after in $((SECONDS - start)) s"
awk -v a="$before" -v b="$after" 'BEGIN { exit !(a < 0.5 && b > 0.95) }' ||
  { echo "demo: expected below 0.5 before and above 0.95 after" >&2; exit 1; }
