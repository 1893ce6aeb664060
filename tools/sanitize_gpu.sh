#!/usr/bin/env bash
# Every kernel family of the CUDA backend under compute-sanitizer: memcheck (reads and writes out of bounds, leaks of
# errors) and racecheck (shared memory). One line a program and tool; exit 1 if one is not clean. A few minutes.
# cuBLASLt's own kernels (nvjet) are left out: racecheck does not understand their barriers.
# usage: tools/sanitize_gpu.sh BUILD_DIR [memcheck|racecheck ...]
set -u
cd "$(dirname "$0")/.."
build=$1
shift
tools=("$@")
[ ${#tools[@]} -gt 0 ] || tools=(memcheck racecheck)
sanitizer=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
mkdir -p "$build/sanitizer-logs"
options=(--error-exitcode 9)
"$sanitizer" --help | grep -q -- --kernel-name-exclude && options+=(--kernel-name-exclude kernel_substring=nvjet)
families=(  # name, program, its tests
  "ops              frozen_test        *"
  "norms-and-heads  ops_test           *Norm*:*FusedPasses:*HeadsGoToPages:*EmbeddingGatherAdd:*.Swiglu"
  "products         ops_test           GpuOps.Linear"
  "sampler          ops_test           *SampleDraws*:*LogprobAndEntropy"
  "engine           one_numerics_test  *GpuSmallModels*"
  "decode-graphs    hf_parity_test     *GreedyTokens/qwen3_default:*GreedyTokens/llama_default"
)
bad=0
for tool in "${tools[@]}"; do
  for family in "${families[@]}"; do
    read -r name program filter <<< "$family"
    log=$build/sanitizer-logs/$tool-$name.log
    start=$SECONDS
    timeout 300 "$sanitizer" --tool "$tool" "${options[@]}" "$build/tests/gpu/$program" --gtest_filter="$filter" > "$log" 2>&1
    rc=$?
    summary=$(grep -E 'SUMMARY' "$log" | tail -1)
    printf '%-5s %4ss  %-10s %-16s exit %s %s\n' "$([ $rc = 0 ] && echo ok || echo BAD)" $((SECONDS - start)) "$tool" "$name" $rc "$summary"
    [ $rc = 0 ] || bad=1
  done
done
exit $bad
