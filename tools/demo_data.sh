#!/usr/bin/env bash
# Integer addition, all sums of two numbers below 100, dealt by a fixed linear congruential generator: 512 held-out
# problems (heldout.jsonl) and the rest for training (train.jsonl). teacher.jsonl has each of the latter five times with
# a response: twice the right sum, three times ten more. usage: tools/demo_data.sh OUT_DIR
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
    printf "{\"prompt\":\"%d+%d=\",\"answer\":\"%d\"}\n", a, b, a + b > file
    if (i >= 512)
      for (k = 0; k < 5; ++k)
        printf "{\"prompt\":\"%d+%d=\",\"response\":\"%d\"}\n", a, b, a + b + (k < 2 ? 0 : 10) > (out "/teacher.jsonl")
  }
}'
