#!/usr/bin/env bash
# Runs test programs, two at a time, and the checks of the tree. Names ending in _mpiN_test run on N ranks.
# Prints what failed, and at the end one line: N passed, N failed, N skipped. usage: tools/run_tests.sh PROGRAM...
set -u
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
launcher="mpirun --oversubscribe --bind-to none"
[ "$(id -u)" = 0 ] && launcher="$launcher --allow-run-as-root"

run_one() {
  local program=$1 log=$logs/$(echo "$1" | tr / _) start=$SECONDS
  case $program in
    *.sh) timeout 300 "$program" > "$log" 2>&1 ;;
    *_mpi[0-9]_test) local n=${program##*_mpi}; timeout 300 $launcher -n "${n%_test}" "$program" > "$log" 2>&1 ;;
    *) timeout 600 "$program" > "$log" 2>&1 ;;
  esac
  local code=$?
  echo $code > "$log.code"
  echo "$program" > "$log.name"
  [ $code = 0 ] && echo "  ok    $program ($((SECONDS - start)) s)" || echo "  FAIL  $program (exit $code, $((SECONDS - start)) s)"
}

for program in tools/check_layers.sh tools/check_size.sh "$@"; do
  while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
  run_one "$program" &
done
wait

passed=0 failed=0 skipped=0
for code in "$logs"/*.code; do
  log=${code%.code}
  name=$(cat "$log.name")
  # One line of each kind from rank 0 of an MPI test is enough.
  p=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) tests\{0,1\}\..*/\1/p' "$log" | head -1)
  s=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) tests\{0,1\}, listed below.*/\1/p' "$log" | head -1)
  f=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) tests\{0,1\}, listed below.*/\1/p' "$log" | head -1)
  case $name in *.sh) [ "$(cat "$code")" = 0 ] && p=1 || f=1 ;; esac
  [ "$(cat "$code")" != 0 ] && [ "${f:-0}" = 0 ] && f=1
  [ "$(cat "$code")" != 0 ] && { echo "---- $name"; tail -n 40 "$log"; }
  passed=$((passed + ${p:-0})) failed=$((failed + ${f:-0})) skipped=$((skipped + ${s:-0}))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
