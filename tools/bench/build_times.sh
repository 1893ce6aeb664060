#!/usr/bin/env bash
# What a build costs in processor time (user and system, without ccache), in a folder of its own below build/: the first
# one without nvcc, and one after a change of one file of src/run, as the median over several (FILES=9).
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=build/times
export CCACHE_DISABLE=1
build() {  # prints seconds of processor time, and of the clock
  TIMEFORMAT='%U %S %R'
  { time make --no-print-directory B=$folder CUDA=0 "$@" $folder/temper > $folder.log 2>&1; } 2>&1 |
    awk '{ printf "%.1f %.1f\n", $1 + $2, $3 }'
}

rm -rf $folder
mkdir -p build
read -r first clock < <(build)
[ -x $folder/temper ] || { tail -20 $folder.log >&2; exit 1; }
commands=$(grep -c '^\[' $folder.log)
awk -v s="$first" -v c="$clock" -v n="$commands" -v j="$(nproc)" 'BEGIN {
  printf "first build without nvcc: %.1f min of processor time (at most 16), %d commands, %.1f min on %d cores\n", s / 60, n, c / 60, j }'

all=$(find src/run -name '*.cpp' | sort)
every=$(($(wc -l <<< "$all") / ${FILES:=9}))
for file in $(awk -v e="$every" 'NR % e == 1 || e == 1' <<< "$all" | head -"$FILES"); do
  read -r seconds _ < <(build -W "$file")
  echo "$seconds $file"
done | sort -n | awk '
  { s[NR] = $1; f[NR] = $2 }
  END { m = int((NR + 1) / 2)
    printf "one file of src/run changed: %.1f s of processor time in the median (at most 5), %.1f (%s) to %.1f (%s), %d files\n", \
      s[m], s[1], f[1], s[NR], f[NR], NR }'
