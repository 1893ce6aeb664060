#!/usr/bin/env bash
# A function of src/ has at most 6 parameters besides the context (`Ctx&`, in core the `Lane&` of one): more of them are
# values that belong together. The operations of src/ops, whose parameters are what a formula says, are not counted.
# Prints offenders; exit 1 if any.
set -uo pipefail
cd "$(dirname "$0")/../.."
limit=6

find src -path src/ops -prune -o \( -name '*.cpp' -o -name '*.h' \) -print | sort | xargs awk -f tools/check/functions.awk |
  awk -F'\t' -v limit="$limit" '
  $2 == "function" || $2 == "declaration" {
    ++functions; n = 0
    for (i = 5; i <= NF; ++i) n += $i !~ /^(Ctx|Lane) ?&/
    if (n <= limit) next
    print $1 ": " $4 " has " n " parameters besides the context, limit " limit; ++failed
  }
  END {
    if (functions == 0) print "no functions were found in src/"
    exit failed > 0 || functions == 0
  }'
