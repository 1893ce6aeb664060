# Sourced by the job scripts beside it, which set `here` (this folder) and `binding` (options of srun): runs `temper train`
# with their arguments, and queues the job again where it can go on.
temper=${TEMPER:-}
for candidate in "$here/../build/temper" "$here/../../../bin/temper" build/temper; do
  [ -n "$temper" ] || [ ! -x "$candidate" ] || temper=$candidate
done
temper=${temper:-temper}

# The program writes step and path of what it has saved last into this file.
export TEMPER_SAVED_FILE=$PWD/temper-$SLURM_JOB_ID.saved
last_saved() {
  cat "$TEMPER_SAVED_FILE" 2>/dev/null
}

progress=temper-$SLURM_JOB_ID.starts # starts that saved nothing
before=$(last_saved)
srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" "${binding[@]}" "$temper" train "$@"
code=$?
case $code in
74 | 75 | 76 | 137)
  starts=0
  [ "$(last_saved)" != "$before" ] || starts=$(($(cat "$progress" 2>/dev/null || echo 0) + 1))
  echo "$starts" >"$progress"
  if [ "$starts" -lt 3 ]; then
    echo "ended with $code; queued again"
    scontrol requeue "$SLURM_JOB_ID"
  else
    echo "ended with $code; three starts saved nothing new, not queued again" >&2
  fi
  ;;
*) rm -f "$progress" "$TEMPER_SAVED_FILE" ;;
esac
exit "$code"
