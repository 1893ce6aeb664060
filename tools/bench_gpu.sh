#!/usr/bin/env bash
# `make bench` on a machine with a GPU: kernels and decoding (tests/gpu/model_bench), then Hugging Face transformers on the
# same jobs where PEER_PYTHON (default python3) has it. Prints Markdown for tests/bench/RESULTS.md. usage: bench_gpu.sh BUILD_DIR
set -eu
build=$1
peer=${PEER_PYTHON:-python3}
echo "## $(date -u +%F), $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)"
"$build"/tests/gpu/model_bench
"$peer" -c 'import torch, transformers' 2> /dev/null || exit 0
for model in 0.6b 8b; do
  for batch in 1 64; do "$peer" tools/peer_gpu.py $model $batch 2048 128 2> /dev/null || true; done
done
