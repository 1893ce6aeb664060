#!/usr/bin/env bash
# Writes the digests of a build of temper into tests/golden/frozen, for the commit that changes bits on purpose and says
# why: fp32.json and bf16.json of tests/e2e/frozen_runs_test, checkpoint.json of frozen_checkpoint_test. The frozen
# checkpoint itself (run/) is of commit 7b1d5dc and stays. Keys that lines have got since do not join.
# usage: tools/freeze_runs.sh TEMPER FILTER     FILTER as for --gtest_filter: '*' everything, '*_bf16_*' bf16 alone,
#        '*clipped*-*_1' where the norm of several ranks scales gradients, 'FrozenCheckpoint*' runs that go on
set -eu
if [ $# != 2 ]; then
  sed -n '2,7s/^# //p' "$0" >&2
  exit 64
fi
temper=$(realpath "$1") filter=$2
cd "$(dirname "$0")/.."
export FROZEN_PROGRAM=$temper FROZEN_WRITE=1
for name in frozen_runs frozen_checkpoint; do
  program=$(ls -t build/release-*/tests/e2e/${name}_test 2> /dev/null | head -1)
  if [ -z "$program" ]; then
    echo "build/release-cuda*/tests/e2e/${name}_test is not built: make tests" >&2
    exit 64
  fi
  "$program" --gtest_brief=1 --gtest_filter="$filter"
done
git diff --stat -- tests/golden/frozen
