#!/usr/bin/env bash
# Every kernel family of the CUDA backend under compute-sanitizer: memcheck (accesses out of bounds, errors of calls) and
# racecheck (shared memory). One line a program and tool; exit 1 if one is not clean. About five minutes.
# What racecheck says about cuBLASLt's own kernels (nvjet), whose barriers it does not follow, is counted apart. So are bulk copies
# into memory that other threads have read (lds2) and handed back by an mbarrier: it only follows barriers at which every reader
# arrives, not those at which one lane of a warp arrives after __syncwarp. The family hybrid-engine (the delta rule's scan) has other
# such readers: for it, build with NVFLAGS.release="-O3 -lineinfo -DTEMPER_EVERY_LANE_ARRIVES" into a folder of its own (B=DIR).
# LIMIT is the seconds that one of them may take.
# usage: [FAMILY=REGEX] [LIMIT=300] tools/sanitize_gpu.sh BUILD_DIR [memcheck|racecheck ...]
set -u
cd "$(dirname "$0")/.."
build=$1
shift
tools=("$@")
[ ${#tools[@]} -gt 0 ] || tools=(memcheck racecheck)
sanitizer=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
logs=$build/sanitizer-logs
mkdir -p "$logs"
export XDG_CACHE_HOME=$PWD/$logs/cache GTEST_COLOR=no TEST_WAIT_SECONDS=600
# name, program, its tests, those of them for racecheck where all would take too long; "none": its kernels are those of
# other families, or have no shared memory
families=(
  "ops              frozen_test        *"
  "norms-and-heads  ops/norm_test      *"
  "rows             ops/embedding_test *"
  "scattered-rows   ops/rows_test      *"
  "turns            ops/rope_test      *"
  "updates          ops/optimizer_test *"
  "sums             ops/elementwise_test *"
  "updates-far      elementwise_test   Adamw.*"
  "gates            ops/glu_test       *TypesRows:*InPlace"
  "products         ops/linear_test    *Types"
  "adapters         ops/adapter_test   *"
  "head             ops/head_test      *"
  "attention-back   ops/attention_test * *ShortSequences"
  "sampler          sample_test        *SampleDraws*"
  "engine           one_numerics_test  *EverythingAtOnce/qwen3_heads_of_128:*LogitEdits/qwen2*"
  "hybrid-engine    one_numerics_test  *EverythingAtOnce/qwen3_5*"
  "decode-graphs    hf_parity_test     *GreedyTokens/qwen3_default:*GreedyTokens/llama_default"
  "digests          ops/digest_test    *"
  "routers          ops/routers_test   *"
  "expert-rows      ops/experts_test   * *EqualLogits*:*SortedBy*"
  "expert-products  experts_test       *TakeAnyNumberOfRows:*RowsOfOthers* *RowsOfOthers*"
  "hybrid-rows      ops/hybrid/delta_rows_test *Types*:*GradientsRepeat*:*Limits:DeltaInputs.* *GradientsRepeat*:*Limits:GatedNorm.*:DeltaInputs.BitsOfTheParts"
  "hybrid-norms     ops/hybrid/norms_test *Types*:*SumThenNorm *Types*"
  "delta-rule       ops/hybrid/delta_rule_test *FewRows:DeltaRule.Types"
  "delta-back       ops/hybrid/delta_rule_backward_test *FewRows:*NoRows"
  "wide-heads       attention_test     *FewRowsOfHeadsOf256"
  "exchanges        collectives_mpi2_test *InAGraph:*LieAnywhere:*CutOtherwise*:*OfAnySize *CutOtherwise*:*OfAnySize"
  "layouts          layouts_mpi4_test  *EveryAxis* none"
)

races() {  # races LOG: hazards in our kernels, hazards that the tool takes for such
  awk 'function close_report() { ours += open && !handed; theirs += open && handed; open = 0 }
    /Error: Race reported/ { close_report(); open = 1; handed = /nvjet/ || /Write access at temper::cuda::bulk_load/; nvjet = /nvjet/ }
    open && /  and .* access at/ && !nvjet && !/and Read access at temper::cuda::lds2/ { handed = 0 }
    END { close_report(); print ours + 0, theirs + 0 }' "$1"
}
bad=0
for family in "${families[@]}"; do
  read -r name program filter few <<< "$family"
  [[ $name =~ ${FAMILY:-.} ]] || continue
  command=("$build/tests/gpu/$program" --gtest_filter="$filter")
  ranks=()
  [[ $program =~ _mpi([0-9]+)_test$ ]] && ranks=(mpirun --oversubscribe --bind-to none -n "${BASH_REMATCH[1]}")
  # Once alone: the sweep of cuBLASLt then lies on disk, and the tools need not watch it.
  "${ranks[@]}" "${command[@]}" > "$logs/$name.log" 2>&1 || { echo "BAD   $name fails without a tool"; bad=1; }
  for tool in "${tools[@]}"; do
    [ "$tool $few" != "racecheck none" ] || continue
    log=$logs/$tool-$name.log start=$SECONDS
    [ "$tool" = racecheck ] && watched=("${command[0]}" --gtest_filter="${few:-$filter}") || watched=("${command[@]}")
    timeout "${LIMIT:-300}" "${ranks[@]}" "$sanitizer" --tool "$tool" "${watched[@]}" > "$log" 2>&1
    rc=$?
    summary=$({ grep -E 'SUMMARY' "$log" | grep -v ' 0 errors' || grep -E 'SUMMARY' "$log"; } | tail -1)  # the worst rank's
    read -r ours theirs <<< "$(races "$log")"
    clean=$([[ $rc = 0 && $ours = 0 ]] && { [ "$tool" = racecheck ] || [[ $summary == *" 0 errors"* ]]; } && echo ok || echo BAD)
    [ "$clean" = ok ] || bad=1
    printf '%-5s %4ss  %-10s %-16s exit %s %s%s\n' "$clean" $((SECONDS - start)) "$tool" "$name" $rc "$summary" \
      "$([ "$theirs" = 0 ] || echo " (in our kernels $ours)")"
  done
done
exit $bad
