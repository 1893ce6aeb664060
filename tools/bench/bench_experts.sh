#!/usr/bin/env bash
# On a machine with several GPUs: seconds of an update of a layer of Qwen3-30B-A3B, as the difference of two depths, on one
# GPU beside a layer of the dense 1.7B shape, and on each of several by ZeRO-3 and with experts over them
# (tests/gpu/train_bench, 65,536 tokens a GPU). Prints Markdown for tests/bench/RESULTS.md. With one GPU: its rows alone.
# usage: tools/bench/bench_experts.sh BUILD_DIR GPUS
set -eu
cd "$(dirname "$0")/../.."
bench=$1/tests/gpu/train_bench gpus=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

update() { # update RANKS NAME OPTION...: seconds of an update; its row goes to stderr
  local ranks=$1 row
  shift
  row=$(mpirun -n "$ranks" --oversubscribe --bind-to none "$bench" "$@" --updates 3 < /dev/null | grep '^| train') ||
    { echo "train_bench $* on $ranks ranks failed" >&2; return 1; }
  echo "$row" >&2
  echo "$row" | awk -F'|' '{print $3 + 0}'
}
layer() { # layer FEW MANY RANKS NAME OPTION...: seconds of a layer
  local few=$1 many=$2 a b
  shift 2
  a=$(update "$@" --layers "$few")
  b=$(update "$@" --layers "$many")
  awk -v a="$a" -v b="$b" -v n=$((many - few)) 'BEGIN { printf "%.4f\n", (b - a) / n }'
}
share() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }

echo "## $(date -u +%F), $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1), $gpus ranks"
dense=$(layer 2 6 1 1.7B) one=$(layer 2 4 1 30B-A3B)
# A layer's TFLOP/s beside the dense layer's: both have 65,536 tokens; what a token meets of weights and of attention, which
# half of 4,096 keys are on average, as src/train/flops.h counts them.
flops=$(awk 'BEGIN { dense = 2048 * 4096 + 2048 * 2048 + 3 * 2048 * 6144 + 2048 * 4096
  experts = 2048 * 5120 + 4096 * 2048 + 3 * 2048 * 8 * 768 + 2048 * 128 + 4096 * 4096; print experts / dense }')
echo "| | a layer | |"
echo "|---|---|---|"
echo "| dense 1.7B, one GPU | $dense s | |"
echo "| 30B-A3B, one GPU | $one s | $(awk -v d="$dense" -v o="$one" -v f="$flops" 'BEGIN { printf "%.2f", f * d / o }') of the dense layer's TFLOP/s |"
[ "$gpus" -gt 1 ] || exit 0
for layout in "--zero 3" "--ep $gpus"; do
  # shellcheck disable=SC2086
  several=$(layer 2 4 "$gpus" 30B-A3B $layout)
  echo "| $layout on $gpus | $several s | $(share "$one" "$several") of one GPU |"
done
