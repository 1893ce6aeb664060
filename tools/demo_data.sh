#!/usr/bin/env bash
# The problems that the small models of conf/ learn, dealt by a fixed generator: the same files everywhere.
# usage: tools/demo_data.sh OUT_DIR [products [LARGEST [LINES]]]
#
# Sums, all of two numbers below 100: 512 held-out problems (heldout.jsonl) and the rest for training (train.jsonl).
# teacher.jsonl has each of the latter five times with a response: twice the right sum, three times ten more.
#
# Products, of two numbers from 1 to LARGEST (999), all problems different: 1024 held-out ones (heldout.jsonl) and LINES
# (400000) for training (train.jsonl), which have a response too. It is written as on paper, ones first: the product with
# each digit of the second number, the running sums, then after a space the answer as it is read, 123*45= 516+0294=5355 5535.
# The teacher is careless: one number in eight has a wrong digit, with which he goes on.
set -eu
mkdir -p "$1"

sums() {
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
}

products() {
  awk -v out="$1" -v largest="$2" -v lines="$3" '
    function below(n) { x = x * 48271 % 2147483647; return int(x / 2147483647 * n) }  # exact in a double
    function ones_first(n,  s) { for (s = ""; n >= 10; n = int(n / 10)) s = s n % 10; return s n }
    function wrong_digit(n,  unit, digit) {
      unit = 10 ^ below(length(n "")); digit = int(n / unit) % 10
      return n + ((digit + 1 + below(9)) % 10 - digit) * unit
    }
    function careless(n) { return below(8) ? n : wrong_digit(n) }
    function steps(a, b,  text, sum, part, unit) {
      text = ones_first(sum = careless(a * (b % 10)))
      for (unit = 10; unit <= b; unit *= 10) {
        part = careless(a * (int(b / unit) % 10)) * unit
        text = text "+" ones_first(part) "=" ones_first(sum = careless(sum + part))
      }
      return text " " careless(sum)
    }
    BEGIN {
      x = 12345
      for (i = -1024; i < lines; ++i) {
        do { a = 1 + below(largest); b = 1 + below(largest) } while ((a, b) in dealt)
        dealt[a, b]
        if (i < 0)
          printf "{\"prompt\":\"%d*%d=\",\"answer\":\"%d\"}\n", a, b, a * b > (out "/heldout.jsonl")
        else
          printf "{\"prompt\":\"%d*%d=\",\"answer\":\"%d\",\"response\":\"%s\"}\n", a, b, a * b, steps(a, b) \
            > (out "/train.jsonl")
      }
    }'
}

case ${2:-sums} in
  sums) sums "$1" ;;
  products) products "$1" "${3:-999}" "${4:-400000}" ;;
  *) sed -n '2,3s/^# \{0,1\}//p' "$0" >&2; exit 64 ;;
esac
