#!/usr/bin/env bash
# `make bench-ranks` on a machine with several GPUs: what carries tensors between them (tests/gpu/link_bench), new weights
# for a rank that generates (weights_bench), whole updates in layouts beside the same on one GPU (train_bench). Prints
# Markdown for tests/bench/RESULTS.md.
# usage: tools/bench/bench_ranks.sh BUILD_DIR GPUS [check]: with `check` only says whether there are so many
set -eu
cd "$(dirname "$0")/../.."
build=$1 gpus=$2
here=$(nvidia-smi -L 2> /dev/null | wc -l) || true
if [ "$here" -lt "$gpus" ] || [ "$gpus" -lt 2 ]; then
  echo "bench_ranks: GPUS=$gpus, and this machine has $here GPUs: name two or more that it has" >&2
  exit 2
fi
[ "${3:-}" != check ] || exit 0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ranks() { mpirun -n "$gpus" --oversubscribe --bind-to none "$@"; }
echo "## $(date -u +%F), $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1), $gpus ranks"
"$build"/temper --version | grep -E '^(temper|CUDA|NCCL)'
nvidia-smi topo -m || true
ranks "$build"/tests/gpu/link_bench
mpirun -n 2 --oversubscribe --bind-to none "$build"/tests/gpu/weights_bench
echo
"$build"/tests/gpu/train_bench 1.7B
ranks "$build"/tests/gpu/train_bench 1.7B
ranks "$build"/tests/gpu/train_bench 1.7B --pp "$gpus"
# What layouts are compared with is one GPU that holds the model, its gradients and moments.
large=(8B --updates 2)
memory_mib=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -1)
[ "$memory_mib" -gt 100000 ] || large+=(--layers 16)
"$build"/tests/gpu/train_bench "${large[@]}"
for layout in "--tp $gpus" "--pp $gpus" "--zero 1" "--zero 3"; do
  # shellcheck disable=SC2086
  ranks "$build"/tests/gpu/train_bench "${large[@]}" $layout
done
