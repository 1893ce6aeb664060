#!/usr/bin/env bash
# `make test-slurm`: slurm/cpu.sbatch as a user sends it, to a Slurm of this machine alone with two nodes, which are two
# daemons here. A run that is sent a signal, requeued from outside, robbed of a rank, or continued on other ranks leaves
# the metrics, rollouts and exported weights of the same run under mpirun that nothing happened to.
# Needs root and Debian's slurm-wlm; takes about five minutes, most of them Slurm's before a job may start again.
set -u
cd "$(dirname "$0")/.."
root=$PWD
export TEMPER=${TEMPER:-$root/build/temper} OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
steps=${STEPS:-60}
for program in slurmctld slurmd sbatch unshare; do
  command -v "$program" > /dev/null && continue
  echo "test-slurm: no $program; as root: apt-get install -y --no-install-recommends slurm-wlm" >&2
  exit 1
done
[ "$(id -u)" = 0 ] || { echo "test-slurm: daemons of Slurm and their mounts need root" >&2; exit 1; }

work=$(mktemp -d /tmp/temper-slurm-XXXXXX)
daemons=()
finish() {
  scancel --state=RUNNING,PENDING --user=root 2> /dev/null && sleep 2
  [ ${#daemons[@]} = 0 ] || kill "${daemons[@]}" 2> /dev/null
  wait
  if [ "${failed:-1}" = 0 ]; then rm -rf "$work"; else echo "test-slurm: logs and runs stay in $work" >&2; fi
}
trap finish EXIT
trap 'exit 1' INT TERM

# --- the cluster -----------------------------------------------------------------------------------------------------
write_settings() {
  local port=$((20000 + $$ % 20000)) host
  host=$(hostname -s)
  mkdir -p "$work"/{state,spool-n1,spool-n2,pmix,pmix-n2,log,job}
  export SLURM_CONF=$work/slurm.conf
  cat > "$SLURM_CONF" << TEXT
ClusterName=temper
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
SlurmctldPort=$port
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool-%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmctldLogFile=$work/log/slurmctld
SlurmdLogFile=$work/log/slurmd-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=pmix
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobRequeue=1
KillWait=20
SchedulerParameters=sched_interval=2,bf_interval=2
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=4 State=UNKNOWN
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=4 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
TEXT
  echo "PMIxCliTmpDirBase=$work/pmix" > "$work/mpi.conf"
}

# The second node has PMIx files and shared memory of its own, as another machine has.
start_daemons() {
  slurmctld -D -f "$SLURM_CONF" > /dev/null 2>&1 &
  daemons+=($!)
  slurmd -D -f "$SLURM_CONF" -N n1 > /dev/null 2>&1 &
  daemons+=($!)
  unshare -m sh -c "mount --make-rprivate / && mount --bind '$work/pmix-n2' '$work/pmix' &&
    mount -t tmpfs tmpfs /dev/shm && exec slurmd -D -f '$SLURM_CONF' -N n2" > /dev/null 2>&1 &
  daemons+=($!)
  wait_until 60 "two idle nodes" both_idle || { sinfo; tail -n 20 "$work"/log/*; exit 1; }
}
both_idle() { [ "$(sinfo -h -o '%T %D' 2> /dev/null)" = "idle 2" ]; }

wait_until() {  # wait_until SECONDS WHAT COMMAND...
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ $SECONDS -lt $end ] || { echo "test-slurm: waited in vain for $what" >&2; return 1; }
    sleep 0.2
  done
}

# --- the run ---------------------------------------------------------------------------------------------------------
write_run() {
  for i in {1..99}; do echo "{\"prompt\":\"$i+1=\",\"answer\":\"$((i % 5))\"}"; done > data.jsonl
  "$TEMPER" init --config "$root/conf/demo/config.json" --tokenizer "$root/conf/demo" --out model > init.log 2>&1 || exit 1
  cat > run.toml << TEXT
[run]
name = "alone"
steps = $steps
threads = 1
device = "cpu"
[model]
path = "model"
[data]
train = "data.jsonl"
chat = false
[roles]
rollout.ranks = "0-1"
trainer.ranks = "0"
[rollout]
prompts_per_step = 16
samples_per_prompt = 32
max_prompt_tokens = 12
max_new_tokens = 1
[optimizer]
lr = 4e-4
[reward]
functions = ["exact"]
[checkpoint]
every = 5
export_hf_every = $steps
TEXT
}

metrics_of() { sed -E 's/"(timing_s|perf)\/[^,}]*[,}]//g' "runs/$1/metrics.jsonl"; }
steps_of() { cat "runs/$1/metrics.jsonl" 2> /dev/null | wc -l; }
has_steps() { [ "$(steps_of "$1")" -ge "$2" ]; }
gone() { [ -z "$(squeue -h -j "$1" -o %T 2> /dev/null)" ]; }
running() { [ "$(squeue -h -j "$1" -o %T 2> /dev/null)" = RUNNING ]; }
send() {  # send NAME [OPTION OF SBATCH ...] -- [KEY=VALUE ...]: prints the job's number
  local name=$1 options=()
  shift
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  sbatch --parsable --job-name="$name" --nodes=2 --ntasks-per-node=1 --cpus-per-task=1 --time=30 "${options[@]}" \
    "$root/slurm/cpu.sbatch" run.toml run.name="$name" "$@"
}
rank_of() {  # the process of one rank of a job
  local pid
  for pid in $(pgrep -x temper); do
    ! grep -qz "^SLURM_JOB_ID=$1\$" "/proc/$pid/environ" 2> /dev/null || { echo "$pid"; return; }
  done
}
# The job ends, was started again as often as it has to, and left what the run left that nothing happened to.
check() {  # check NAME JOB STARTS
  local name=$1 job=$2 starts
  wait_until 300 "the end of $name" gone "$job" || { squeue; tail -n 30 "temper-$job.log"; return 1; }
  starts=$(grep -c '^[0-9]* parameters, ' "temper-$job.log")
  if [ "$starts" != "$3" ]; then
    echo "$name: $starts starts, not $3"
    tail -n 30 "temper-$job.log"
    return 1
  fi
  diff -q <(metrics_of alone) <(metrics_of "$name") && diff -rq runs/alone/rollouts "runs/$name/rollouts" &&
    diff -rq runs/alone/export "runs/$name/export" || return 1
}
case_of() {  # case_of NAME TEXT: runs the function NAME
  local start=$SECONDS
  if "$1"; then
    printf 'ok    %4ss  %s\n' $((SECONDS - start)) "$2"
  else
    printf 'FAIL  %4ss  %s\n' $((SECONDS - start)) "$2"
    failed=1
  fi
}

started() { check started "$(send started --)" 1; }
signalled() {
  local job
  job=$(send signalled --)
  wait_until 120 "steps" has_steps signalled 3 && scancel --signal=USR1 "$job" && check signalled "$job" 2
}
requeued() {
  local job
  job=$(send requeued --)
  wait_until 120 "steps" has_steps requeued 7 && scontrol requeue "$job" && check requeued "$job" 2
}
killed() {
  local job
  job=$(send killed --)
  wait_until 120 "steps" has_steps killed 7 && kill -KILL "$(rank_of "$job")" && check killed "$job" 2
}
other_ranks() {
  local job
  job=$(send other_ranks --)
  wait_until 120 "steps" has_steps other_ranks 7 && scancel "$job" && wait_until 60 "its end" gone "$job" || return 1
  [ "$(steps_of other_ranks)" -lt "$steps" ] || { echo "other_ranks: it had ended"; return 1; }
  check other_ranks "$(send other_ranks --ntasks-per-node=2 -- roles.rollout.ranks=0-3)" 1
}

write_settings
start_daemons
cd "$work/job" || exit 1
write_run
mpirun --oversubscribe --bind-to none -n 2 "$TEMPER" train run.toml > alone.log 2>&1 || { tail -n 20 alone.log; exit 1; }
failed=0
case_of started "a job on two nodes"
case_of signalled "a signal to the job: saved with 75, queued again"
case_of requeued "requeued from outside: SIGTERM to the ranks"
case_of killed "a killed rank: queued again"
case_of other_ranks "cancelled, then sent again with four ranks in place of two"
exit "$failed"
