#!/usr/bin/env bash
# Integer addition, all sums of two numbers below 100: 512 held-out problems and the rest for training, dealt by a fixed
# linear congruential generator. usage: tools/demo_data.sh OUT_DIR
set -eu
mkdir -p "$1"
awk -v out="$1" 'BEGIN {
  x = 12345
  for (i = 0; i < 10000; ++i) problem[i] = i
  for (i = 9999; i > 0; --i) {
    x = (x * 1103515245 + 12345) % 2147483648
    j = int(x / 2147483648 * (i + 1))
    t = problem[i]; problem[i] = problem[j]; problem[j] = t
  }
  for (i = 0; i < 10000; ++i) {
    a = int(problem[i] / 100); b = problem[i] % 100
    file = out (i < 512 ? "/heldout.jsonl" : "/train.jsonl")
    printf "{\"prompt\":\"%d+%d=\",\"answer\":\"%d\",\"response\":\"%d\"}\n", a, b, a + b, a + b > file
  }
}'
