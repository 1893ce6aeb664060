# Sourced by the job scripts beside it, which set `here` (this folder) and `binding` (options of srun): runs `temper train`
# with their arguments, and queues the job again where it can go on.
temper=${TEMPER:-}
for candidate in "$here/../build/temper" "$here/../../../bin/temper" build/temper; do
  [ -n "$temper" ] || [ ! -x "$candidate" ] || temper=$candidate
done
temper=${temper:-temper}

# The newest commit anywhere below the runs of the folder that the job was sent from.
newest_commit() {
  find -L "${RUNS:-runs}" -path '*/checkpoints/step-*/manifest.json' -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -1
}

progress=temper-$SLURM_JOB_ID.starts # starts without a newer commit
before=$(newest_commit)
srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" "${binding[@]}" "$temper" train "$@"
code=$?
case $code in
74 | 75 | 76 | 137)
  starts=0
  [ "$(newest_commit)" != "$before" ] || starts=$(($(cat "$progress" 2>/dev/null || echo 0) + 1))
  echo "$starts" >"$progress"
  if [ "$starts" -lt 3 ]; then
    echo "ended with $code; queued again"
    scontrol requeue "$SLURM_JOB_ID"
  else
    echo "ended with $code; three starts brought no newer checkpoint, not queued again" >&2
  fi
  ;;
*) rm -f "$progress" ;;
esac
exit "$code"
