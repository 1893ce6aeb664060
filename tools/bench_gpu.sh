#!/usr/bin/env bash
<<<<<<< HEAD
# `make bench` on a machine with a GPU: kernels and decoding (tests/gpu/model_bench), what
# training does between products (tests/gpu/elementwise_bench), its products (backward_bench), then Hugging Face transformers on the
# same jobs where PEER_PYTHON (default python3) has it. Prints Markdown for tests/bench/RESULTS.md; what a peer says on
# stderr goes to BUILD_DIR/bench-peer.log. usage: tools/bench_gpu.sh BUILD_DIR
=======
# `make bench` on a machine with a GPU: kernels and decoding (tests/gpu/model_bench, backward_bench), then Hugging Face
# transformers on the same jobs where PEER_PYTHON (default python3) has it. Prints Markdown for tests/bench/RESULTS.md;
# what a peer says on stderr goes to BUILD_DIR/bench-peer.log. usage: tools/bench_gpu.sh BUILD_DIR
>>>>>>> 2ee814d (Notes of the backward numerics in whole lines)
set -eu
cd "$(dirname "$0")/.."
build=$1
peer=${PEER_PYTHON:-python3}
echo "## $(date -u +%F), $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)"
"$build"/tests/gpu/model_bench
echo
"$build"/tests/gpu/elementwise_bench
echo
"$build"/tests/gpu/backward_bench
if ! "$peer" -c 'import torch, transformers' 2> "$build/bench-peer.log"; then
  echo "(no transformers in $peer: no peer)"
  exit 0
fi
echo
for model in 0.6b 8b; do
  for batch in 1 64; do "$peer" tools/peer_gpu.py $model $batch 2048 128 2>> "$build/bench-peer.log"; done
done
