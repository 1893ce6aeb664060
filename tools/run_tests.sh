#!/usr/bin/env bash
# Runs every built test and the checks of the source tree, as many at a time as keep JOBS cores busy, and ends with one
# line over all GoogleTest cases and checks: `N passed, N failed, N skipped`. A test named *_mpiN_test runs on N ranks;
# ranks report for themselves, and a case counts as the worst of them. The longest start first: BUILD_DIR/test-seconds
# keeps what each took. usage: tools/run_tests.sh BUILD_DIR [PATTERN]; JOBS=2, with 1 they run one by one; SUITE=gpu for
# the tests that need a GPU, SUITE=long for runs of many steps, SUITE=layouts, SUITE=learn, SUITE=chaos for faults in runs
set -u
cd "$(dirname "$0")/.."

run_one() {  # run_one SCRIPT_OR_TEST: leaves a log and one line `passed failed skipped seconds name`
  local program=$1 name log rc passed failed skipped ranks took TIMEFORMAT=%R
  name=${program#"$build"/tests/}
  log=$build/test-logs/${name//\//.}.log
  local command=(timeout -k 10 "${LIMIT:-600}" "$program")
  if [[ $name =~ _mpi([0-9]+)_test$ ]]; then
    ranks=${BASH_REMATCH[1]}
    command=(timeout -k 10 "${LIMIT:-300}" mpirun --oversubscribe --bind-to none -n "$ranks" "$program")
  fi
  # Open MPI's launchers of a user share a folder that the last of them removes; one that begins just then fails ("mkdir:
  # File exists", some 7 of 1000).
  session=$(mktemp -d /tmp/temper-test.XXXXXX)
  trap 'rm -rf "$session"' EXIT
  { time OMPI_MCA_orte_tmpdir_base=$session "${command[@]}" > "$log" 2>&1; } 2> "$session/took"
  rc=$?
  took=$(< "$session/took")
  count() { grep -oE "$1" "$log" | grep -oE '[0-9]+' | sort "$2" | head -1; }
  passed=$(count '\[  PASSED  \] [0-9]+ test' -n)
  failed=$(count '\[  FAILED  \] [0-9]+ test' -nr)
  skipped=$(count '\[  SKIPPED \] [0-9]+ test' -nr)
  if [[ $program != "$build"/* ]]; then passed=$((rc == 0)); fi  # a script counts as one case
  if [ "$rc" != 0 ] && [ "${failed:-0}" = 0 ]; then failed=1; fi
  if [ "$rc" = 0 ] && [ $((${passed:-0} + ${skipped:-0})) = 0 ]; then failed=1 rc=no-tests; fi
  echo "${passed:-0} ${failed:-0} ${skipped:-0} $took $name" > "${log%.log}.result"
  if [ "${failed:-0}" = 0 ]; then
    printf 'ok    %4ss  %-45s %s passed%s\n' "${took%%.*}" "$name" "${passed:-0}" "${skipped:+, $skipped skipped}"
    [ -z "${CHAOS:-}" ] || grep -avE '^(\[|Note: |$)' "$log" | sed 's/^/      | /'  # what was done
    return
  fi
  {
    printf 'FAIL  %4ss  %s (exit %s), whole log in %s\n' "${took%%.*}" "$name" "$rc" "$log"
    grep -aE '(^|\])[^ ]*:[0-9]+: Failure' "$log" | head -5
    tail -25 "$log"
  } | sed '2,$s/^/      | /'
}

if [[ ${1:-} == build/tsan* && -z ${TSAN_OPTIONS:-} ]]; then
  export TSAN_OPTIONS="suppressions=$PWD/tools/tsan.supp:halt_on_error=1:second_deadlock_stack=1"
  # The sanitizer of older compilers ends at once where the system spreads addresses wider than it knows.
  if setarch -R true 2> /dev/null; then exec setarch -R "$0" "$@"; fi
fi
# Open MPI and HDF5 keep what they have until the process ends.
if [[ ${1:-} == build/asan* ]]; then export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0} UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}; fi
build=$1
pattern=${2:-}
mkdir -p "$build/test-logs"
rm -f "$build"/test-logs/*.result
jobs=${JOBS:-2}
threads=$(($(nproc) / jobs))
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}
# Ranks of one host: Open MPI need not look for networks, which takes it longer than many a test.
export OMPI_MCA_pml=${OMPI_MCA_pml:-ob1} OMPI_MCA_btl=${OMPI_MCA_btl:-self,vader}
# Nor list what hangs on the PCI bus: a sixth of what a run of a few small steps takes.
export HWLOC_COMPONENTS=${HWLOC_COMPONENTS:--pci,-linuxio}
export GTEST_COLOR=no OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Files of many small runs lie in memory where it has room for them: a disk syncs them for a quarter of the suite's time.
# What a runner that was killed left there goes first.
for left in /dev/shm/temper-[0-9]*-*; do
  runner=${left#*/temper-}
  if [ -O "$left" ] && ! kill -0 "${runner%%-*}" 2> /dev/null; then rm -rf "$left"; fi
done
gigabytes_free() { df --output=avail -B 1G "$1" 2> /dev/null | tail -1; }
if [[ ${SUITE:-cpu} =~ ^(cpu|layouts)$ ]] && [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ] &&
   [ "$(gigabytes_free /dev/shm)" -ge 8 ] && ! findmnt -no OPTIONS /dev/shm | grep -qw noexec &&
   awk '/^MemAvailable/ { exit $2 < 12 * 1024 * 1024 }' /proc/meminfo; then
  if in_memory=$(mktemp -d "/dev/shm/temper-$$-XXXX"); then
    export TMPDIR=$in_memory
    trap 'rm -rf "$in_memory"' EXIT
  fi
fi
list() {
  if [ "${SUITE:-cpu}" = gpu ]; then
    { find tests/gpu -name '*_test.cpp'; grep -l '^TEST\>' tests/ops/*_test.cpp tests/ops/hybrid/*_test.cpp | sed 's|^tests/|tests/gpu/|'; } |
      sed "s|^|$build/|; s|\.cpp$||"
    return
  fi
  if [[ ${SUITE:-cpu} =~ ^(long|layouts|learn|chaos)$ ]]; then
    find "tests/$SUITE" -name '*_test.cpp' | sed "s|^|$build/|; s|\.cpp$||"
    return
  fi
  echo tools/check/check_layers.sh
  echo tools/check/check_size.sh
  echo tools/check/check_path.sh
  echo tools/check/check_roles.sh
  echo tools/check/check_comments.sh
  echo tools/check/check_parameters.sh
  echo tools/check/check_structs.sh
  echo tools/check/check_grid.sh
  find tests -name '*_test.cpp' -not -path 'tests/gpu/*' -not -path 'tests/long/*' -not -path 'tests/layouts/*' -not -path 'tests/learn/*' |
    sed "s|^|$build/|; s|\.cpp$||"
}

kept=$build/test-seconds  # lines `seconds name`
# Lines `seconds load program` for all that are to run, the longest first. The load is what the program keeps busy of the
# cores, in hundredths of one: as tools/test_loads.txt says, else a core and a quarter for each further rank, since ranks
# wait for each other.
order() {
  list | grep -E -- "${pattern:-.}" | awk -v tests="$build/tests/" -v kept="$kept" -v all=$((100 * jobs)) '
    BEGIN {
      while ((getline < "tools/test_loads.txt") > 0) if (NF == 3) { seconds[$3] = $1; load[$3] = $2 }
      while ((getline < kept) > 0) seconds[$2] = $1
    }
    {
      name = index($1, tests) == 1 ? substr($1, length(tests) + 1) : $1
      if (!(name in load)) load[name] = match(name, /_mpi[0-9]+_test$/) ? 75 + 25 * substr(name, RSTART + 4) : 100
      print seconds[name] + 0, load[name] < all ? load[name] : all, $1
    }' | sort -k1,1nr -k3,3
}

mapfile -t waiting < <(order)
declare -A running=()  # process -> its load
busy=0
limit=$((100 * jobs + 50))  # nothing is busy all the time
most=$((jobs > 1 ? 3 * jobs : 1))
fits() { [ "${#running[@]}" = 0 ] || { [ $((busy + $1)) -le "$limit" ] && [ "${#running[@]}" -lt "$most" ]; }; }
end_all() {
  local process
  for process in "${!running[@]}"; do kill $(< "/proc/$process/task/$process/children"); done 2> /dev/null
  exit 130
}
trap end_all INT TERM HUP
set -m  # else they would ignore an interrupt, which some of them test
while [ $((${#waiting[@]} + ${#running[@]})) -gt 0 ]; do
  for i in "${!waiting[@]}"; do
    read -r _ load program <<< "${waiting[i]}"
    fits "$load" || continue
    run_one "$program" < /dev/null &
    running[$!]=$load
    busy=$((busy + load))
    unset "waiting[i]"
  done
  wait -n -p ended "${!running[@]}"
  busy=$((busy - running[$ended]))
  unset "running[$ended]"
done

{ cat "$kept"; awk '{ print $4, $5 }' "$build"/test-logs/*.result; } 2> /dev/null |
  awk '{ seconds[$2] = $1 } END { for (name in seconds) print seconds[name], name }' | sort -k2 > "$kept.new" &&
  mv "$kept.new" "$kept"
cat "$build"/test-logs/*.result 2> /dev/null | sort -k4,4nr | awk -v all="$SECONDS" '
  { sum += $4; passed += $1; failed += $2; skipped += $3 }
  NR <= 10 { printf "%s %6.1fs  %s\n", NR == 1 ? "slowest:" : "        ", $4, $5 }
  END {
    printf "%d programs, one by one %d s, together %d s\n", NR, sum, all
    printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
    exit failed > 0 || passed == 0
  }'
