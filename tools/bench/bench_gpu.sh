#!/usr/bin/env bash
# `make bench` on a machine with a GPU: kernels and decoding (tests/gpu/model_bench), what training does between products
# (elementwise_bench), its products (backward_bench), those of experts (experts_bench), what gated delta nets do between
# products (hybrid/*_bench), whole updates (train_bench; bench_experts.sh), what tensor parallelism adds (tp_bench), what agents cost
# (bench_agents.sh), then Hugging Face transformers on the same jobs where PEER_PYTHON (default python3) has it. Prints
# Markdown for tests/bench/RESULTS.md; what a peer says on stderr goes to BUILD_DIR/bench-peer.log.
# usage: tools/bench/bench_gpu.sh BUILD_DIR
set -eu
cd "$(dirname "$0")/../.."
build=$1
peer=${PEER_PYTHON:-python3}
echo "## $(date -u +%F), $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)"
"$build"/tests/gpu/model_bench
echo
"$build"/tests/gpu/elementwise_bench
echo
"$build"/tests/gpu/backward_bench
echo
"$build"/tests/gpu/experts_bench
echo
for part in hybrid_rows delta_rule delta_backward mixer; do "$build"/tests/gpu/hybrid/${part}_bench; done
echo
for model in 0.6B 1.7B 8B; do "$build"/tests/gpu/train_bench $model; done
"$build"/tests/gpu/train_bench 3.5-9B --layers 4
tools/bench/bench_experts.sh "$build" 1 2>&1
for model in 1.7B 8B; do "$build"/tests/gpu/train_bench $model --lora 32; done
"$build"/tests/gpu/tp_bench | tail -1
tools/bench/bench_agents.sh "$build" cuda
if ! "$peer" -c 'import torch, transformers' 2> "$build/bench-peer.log"; then
  echo "(no transformers in $peer: no peer)"
  exit 0
fi
echo
"$peer" tools/bench/peer_gpu.py experts 2>> "$build/bench-peer.log"
# In the setting in which each shape is fastest: as much of 65,536 tokens at once as fits.
while read -r job; do
  # shellcheck disable=SC2086
  "$peer" tools/bench/peer_gpu.py train $job 2>> "$build/bench-peer.log" || echo "(train $job failed: see $build/bench-peer.log)"
done << 'JOBS'
0.6b 16384 4
1.7b 16384 4
8b 8192 8
30b-a3b 16384 4 2
30b-a3b 16384 4 4
3.5-9b 8192 8 4
JOBS
for model in 0.6b 8b; do
  for batch in 1 64; do "$peer" tools/bench/peer_gpu.py generate $model $batch 2048 128 2>> "$build/bench-peer.log"; done
done
