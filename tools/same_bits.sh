#!/usr/bin/env bash
# Whether two builds of temper compute the same bits: every run of tests/e2e/frozen_runs_test by both, and the frozen
# checkpoint gone on by both; the first item that differs is shown for each part. For systems whose libm differs from
# the one where digests were frozen, and to see more than a digest says.
# usage: tools/same_bits.sh OLD_TEMPER NEW_TEMPER [FILTER]     FILTER as for --gtest_filter, like '*bf16*'
set -eu
if [ $# -lt 2 ]; then
  sed -n '2,5s/^# //p' "$0" >&2
  exit 64
fi
old=$(realpath "$1") new=$(realpath "$2") filter=${3:-*}
cd "$(dirname "$0")/.."
export FROZEN_PROGRAM=$new FROZEN_OTHER=$old
status=0
for name in frozen_runs frozen_checkpoint; do
  program=$(ls -t build/release-*/tests/e2e/${name}_test 2> /dev/null | head -1)
  if [ -z "$program" ]; then
    echo "build/release-cuda*/tests/e2e/${name}_test is not built: make tests" >&2
    exit 64
  fi
  "$program" --gtest_brief=1 --gtest_filter="$filter" || status=1
done
exit $status
