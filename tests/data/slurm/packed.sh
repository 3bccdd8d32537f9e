#!/bin/bash
# 3 runs of mpt, one after the other. `sbatch THIS_FILE` runs them again, as further attempts.
#SBATCH --job-name=mpt--7b-s2048-8g-1f0c9a3b77de-a2
#SBATCH --comment="tessera mpt mpt--7b-s2048-8g-1f0c9a3b77de mpt--7b-s2048-8g-2f0c9a3b77de mpt--7b-s2048-8g-3f0c9a3b77de"
#SBATCH --partition=gpu
#SBATCH --constraint=hgx
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=12
#SBATCH --gres=gpu:h100:8
#SBATCH --mem=0
#SBATCH --time=01:00:00
#SBATCH --signal=USR1@120
#SBATCH --output=/shared/runs/mpt/mpt--7b-s2048-8g-1f0c9a3b77de/script.2.out
#SBATCH --open-mode=append
#SBATCH --chdir=/shared/runs/mpt/mpt--7b-s2048-8g-1f0c9a3b77de
#SBATCH --no-requeue
#SBATCH --wait-all-nodes=1
#SBATCH --export=NIL

export PATH="${PATH:-/usr/local/bin:/usr/bin:/bin}"
unset SLURM_JWT # a token of the submitter

trainer=/shared/bench/bin/tessera-trainer
restart=${SLURM_RESTART_COUNT:-0}
result=0
ending=
trap 'ending="it was told to end"' TERM

# What each rank runs. The first that fails notes its code (128 + n: by signal n); srun gives the largest of all, also of
# the ranks that it ended because of that one.
task='trap : TERM USR1; "$0"; code=$?; [ "$code" = 0 ] || (set -C; echo "$code" >"$1") 2>/dev/null; exit "$code"'

# run FOLDER ATTEMPT [-u NAME | NAME=VALUE]...: one step, its specification in TESSERA_SPEC.
run() {
  local folder=$1 attempt=$2 code=0
  shift 2
  [ "$SECONDS" -lt 3420 ] || ending="${ending:-the time limit is near}"
  if [ -n "$ending" ]; then
    echo "$folder: not begun: $ending"
    return
  fi
  if ! cd "$folder"; then
    echo "$folder: the run's folder is not there on $(hostname)"
    result=19
    return
  fi
  # Of a script that was started again: the trainer takes the next free attempt too.
  while [ -e "log.$attempt.$restart.0.jsonl" ]; do attempt=$((attempt + 1)); done
  rm -f ".failed.$attempt.$restart"
  if [ ! -x "$trainer" ]; then
    echo "$trainer is not there or not executable on $(hostname)"
    code=127
  else
    env "$@" srun \
      --nodes=1 --ntasks=8 --ntasks-per-node=8 --cpus-per-task=12 --export=ALL --mpi=none --kill-on-bad-exit=1 \
      --wait=60 \
      --open-mode=append --output="out.$attempt.$restart.%t" \
      sh -c "$task" "$trainer" ".failed.$attempt.$restart" || code=$?
  fi
  if [ -s ".failed.$attempt.$restart" ]; then
    read -r code <".failed.$attempt.$restart"
    rm -f ".failed.$attempt.$restart"
  fi
  # Whole or not at all.
  if ! { echo "$code" >".exit.$attempt.$restart" && mv -f ".exit.$attempt.$restart" "exit.$attempt.$restart"; }; then
    echo "$folder: exit code $code cannot be noted"
  fi
  # Some failed: which, their own logs and exit files tell.
  [ "$code" = 0 ] || result=9
  if tail -n 1 "log.$attempt.$restart.0.jsonl" 2>/dev/null | grep -q '"ended_by":"time-limit"'; then
    ending="the time limit is near"
  fi
}
export TESSERA_SPEC

# mpt--7b-s2048-8g-1f0c9a3b77de, attempt 2
IFS= read -r -d '' TESSERA_SPEC <<'END_OF_SPECIFICATION'
{"schema":1,"run":"mpt--7b-s2048-8g-1f0c9a3b77de"}
END_OF_SPECIFICATION
run /shared/runs/mpt/mpt--7b-s2048-8g-1f0c9a3b77de 2 -u NCCL_ALGO NCCL_PROTO=LL128

# mpt--7b-s2048-8g-2f0c9a3b77de, attempt 2
IFS= read -r -d '' TESSERA_SPEC <<'END_OF_SPECIFICATION'
{"schema":1,"run":"mpt--7b-s2048-8g-2f0c9a3b77de"}
END_OF_SPECIFICATION
run /shared/runs/mpt/mpt--7b-s2048-8g-2f0c9a3b77de 2 -u NCCL_ALGO NCCL_PROTO=LL128 >>/shared/runs/mpt/mpt--7b-s2048-8g-2f0c9a3b77de/script.2.out 2>&1 || result=9

# mpt--7b-s2048-8g-3f0c9a3b77de, attempt 2
IFS= read -r -d '' TESSERA_SPEC <<'END_OF_SPECIFICATION'
{"schema":1,"run":"mpt--7b-s2048-8g-3f0c9a3b77de"}
END_OF_SPECIFICATION
run /shared/runs/mpt/mpt--7b-s2048-8g-3f0c9a3b77de 2 -u NCCL_ALGO NCCL_PROTO=LL128 >>/shared/runs/mpt/mpt--7b-s2048-8g-3f0c9a3b77de/script.2.out 2>&1 || result=9

exit "$result"
