#!/bin/bash
# 1 run of mpt. `sbatch THIS_FILE` runs it again, as further attempts.
#SBATCH --job-name=mpt--7b-s2048-16g-1f0c9a3b77de
#SBATCH --comment="tessera mpt mpt--7b-s2048-16g-1f0c9a3b77de"
#SBATCH --partition=gpu
#SBATCH --account=acc
#SBATCH --qos=bench
#SBATCH --reservation=night
#SBATCH --constraint=hgx
#SBATCH --nodelist=n[01-64]
#SBATCH --exclude=n17,n18
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=12
#SBATCH --gres=gpu:h100:8
#SBATCH --mem=900G
#SBATCH --exclusive
#SBATCH --time=01:00:00
#SBATCH --signal=USR1@120
#SBATCH --output=/shared/runs/mpt/mpt--7b-s2048-16g-1f0c9a3b77de/script.1.out
#SBATCH --open-mode=append
#SBATCH --chdir=/shared/runs/mpt/mpt--7b-s2048-16g-1f0c9a3b77de
#SBATCH --no-requeue
#SBATCH --wait-all-nodes=1
#SBATCH --export=NIL
#SBATCH --dependency=afterany:18231:18240_3
#SBATCH --kill-on-invalid-dep=yes
#SBATCH --switches=1
#SBATCH --mail-type=END

export PATH="${PATH:-/usr/local/bin:/usr/bin:/bin}"
PATH="$PATH":/opt/slurm/bin
unset SLURM_JWT # a token of the submitter
command -v module >/dev/null || . /etc/profile
no_modules=
module load cuda/13.0 nccl || { echo "$(hostname): modules not loaded: cuda/13.0 nccl"; no_modules=1; }
export NCCL_IB_HCA=mlx5
export NOTE='it'\''s "$HOME"'
ulimit -l unlimited
source /shared/env.sh

trainer=tessera-trainer
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
  if ! cd "$folder"; then
    echo "$folder: the run's folder is not there on $(hostname)"
    result=19
    return
  fi
  # Of a script that was started again: the trainer takes the next free attempt too.
  while [ -e "log.$attempt.$restart.0.jsonl" ]; do attempt=$((attempt + 1)); done
  rm -f ".failed.$attempt.$restart"
  if [ -n "$no_modules" ]; then
    code=126
  else
    env "$@" srun \
      --nodes=2 --ntasks=16 --ntasks-per-node=8 --cpus-per-task=12 --export=ALL --mpi=none \
      --kill-on-bad-exit=1 --wait=60 --cpu-bind=ldoms --mem-bind=local \
      --container-image='reg.example#bench/tessera@sha256:12ab' \
      --container-mounts=/shared:/shared,/local:/scratch:ro --no-container-mount-home \
      --container-workdir="$PWD" \
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
  # Slurm's accounts would show 139 as 11.
  if [ "$code" -gt 128 ]; then result=18; else result=$code; fi
}
export TESSERA_SPEC

# mpt--7b-s2048-16g-1f0c9a3b77de, attempt 1
IFS= read -r -d '' TESSERA_SPEC <<'END_OF_SPECIFICATION'
{"schema":1,"run":"mpt--7b-s2048-16g-1f0c9a3b77de"}
END_OF_SPECIFICATION
run /shared/runs/mpt/mpt--7b-s2048-16g-1f0c9a3b77de 1

exit "$result"
