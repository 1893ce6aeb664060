#!/usr/bin/env bash
# Runs each built fuzz target (`make fuzz` builds them) on the seeds of the tree and what earlier runs have found, for
# FUZZ_SECONDS of CPU, and prints executions and coverage. usage: tools/fuzz.sh BUILD_DIR [TARGET ...]; FUZZ_SECONDS=600,
# FUZZ_JOBS=2 targets at a time, FUZZ_MEMORY_MB=2048, FUZZ_INPUT_SECONDS=5 of CPU for one input, FUZZ_SEED=1.
# An input that breaks a target stays in BUILD_DIR/fuzz/TARGET/ and is named with the command that repeats it.
set -u
cd "$(dirname "$0")/.."

run_target() {  # run_target BUILD TARGET: exit 1 and the end of its log if it finds something
  local build=$1 target=$2 work=$1/fuzz/$2 log=$1/fuzz/$2/log program=$1/tests/fuzz/$2_fuzz rc inputs
  mkdir -p "$work/corpus" "$work/tmp"
  find "$work" -maxdepth 1 -type f -delete
  local limits=(-rss_limit_mb="${FUZZ_MEMORY_MB:-2048}" -malloc_limit_mb="${FUZZ_MEMORY_MB:-2048}"
    -timeout=$((20 * ${FUZZ_INPUT_SECONDS:-5})))
  TMPDIR=$work/tmp "$program" "${limits[@]}" -seed="${FUZZ_SEED:-1}" -max_len=16384 -print_final_stats=1 \
    -report_slow_units=1000 -artifact_prefix="$work/" "$work/corpus" "tests/fuzz/seeds/$target" > "$log" 2>&1
  rc=$?
  rm -rf "$work/tmp"
  # Of the last line of progress: "#1234 NEW cov: 567 ft: 890 corp: 12/345b ..."
  awk -v target="$target" -v verdict="$([ $rc = 0 ] && echo ok || echo FOUND)" '
    $1 ~ /^#[0-9]+$/ { for (i = 2; i < NF; ++i) { if ($i == "cov:") cov = $(i + 1); if ($i == "ft:") ft = $(i + 1) } }
    /^stat::number_of_executed_units/ { runs = $2 }
    $1 ~ /^#[0-9]+$/ { last = substr($1, 2) }
    /^stat::peak_rss_mb/ { memory = $2 }
    END { printf "%-6s %-14s %10d executions, %6d edges, %6d features, %5d MiB\n", verdict, target, runs ? runs : last, cov, ft, memory }
  ' "$log"
  [ $rc != 0 ] || return 0
  grep -aE '^(==[0-9]+== *)?ERROR|^not as it has to be|SUMMARY|runtime error|terminate called|  what\(\)' "$log" |
    cut -c1-400 | head -8 | sed 's/^/       | /'
  inputs=$(find "$work" -maxdepth 1 -type f ! -name log ! -name 'slow-unit-*')
  for input in $inputs; do echo "       again: $program ${limits[*]} $input"; done
  return 1
}

if [ "${1:-}" = --one ]; then
  run_target "$2" "$3"
  exit
fi
build=$1
shift
[ $# -gt 0 ] || set -- $(cd tests/fuzz && ls ./*_fuzz.cpp | sed 's|^\./||; s|_fuzz\.cpp$||')
export FUZZ_SECONDS=${FUZZ_SECONDS:-600} FUZZ_INPUT_SECONDS=${FUZZ_INPUT_SECONDS:-5}
printf '%s\n' "$@" | xargs -P "${FUZZ_JOBS:-2}" -I{} "$0" --one "$build" {}
