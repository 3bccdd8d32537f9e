#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Many real jobs through a real Slurm: none missed, none doubled, never more at once than asked for, and what one takes.
#
#   bench/slurm_jobs.sh [JOBS [IN_FLIGHT [WAIT_S]]]     default 1000 64 10
#
# Starts tests/cluster/slurm-dev-cluster.sh (4 nodes of 16 CPUs, which are processes of this machine) in a folder of its
# own and ends and deletes it again, however this ends. Each job waits for WAIT_S seconds, so that as many as may be are on
# the cluster at once, then trains a tiny model for 3 steps with one thread; with WAIT_S 0 a small machine ends jobs as fast
# as they come, and the time for one is what all of it costs. They are submitted by SLURM_DEV_USER [slurmtest], which is
# made if it is not there and stays: Slurm before 23.02 runs the whole login of a user for each job. Needs root, what that
# script needs, python3 and the release build. SLURM_DEV_PORT [17800]: the first of some 20 free ports.
# TESSERA_BIN [build/release/bin]: another build.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { echo "slurm_jobs: $*" >&2; exit 1; }
is_count() { [[ $1 =~ ^[1-9][0-9]{0,5}$ ]]; }
is_seconds() { [[ $1 =~ ^(0|[1-9][0-9]{0,2})$ ]]; }

case ${1:-} in -h | --help) sed -n '2,/^set /{/^set /d;/SPDX/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;; esac
jobs=${1:-1000} in_flight=${2:-64} wait_s=${3:-10}
[ $# -le 3 ] && is_count "$jobs" && is_count "$in_flight" && is_seconds "$wait_s" ||
  die "takes JOBS and IN_FLIGHT, numbers from 1, and WAIT_S, from 0"
[ "$(id -u)" = 0 ] || die "only root can start the daemons of a Slurm cluster"
for program in slurmctld slurmd slurmdbd munged mariadbd sbatch squeue sacct; do
  command -v "$program" >/dev/null || die "$program is not installed (scripts/install-packages.sh test)"
done
command -v python3 >/dev/null || die "python3 is not installed"
bin=$(cd "${TESSERA_BIN:-build/release/bin}" 2>/dev/null && pwd) || die "no build: cmake --preset release && cmake --build --preset release"
for program in submit collect trainer; do [ -x "$bin/$program" ] || die "$bin/$program is not built"; done

user=${SLURM_DEV_USER:-slurmtest}

folder=$(mktemp -d /tmp/slurm-jobs-XXXXXX)
chmod 755 "$folder"
keeper= submit=
finish() {
  trap - EXIT
  if [ -n "$submit" ]; then kill -TERM "$submit" 2>/dev/null && wait "$submit" || true; fi
  # The cluster ends when nobody holds its standard input any more.
  if [ -n "$keeper" ]; then exec {hold}>&-; wait "$keeper" || true; fi
  rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

unset SLURM_CONF
mkfifo "$folder/hold" "$folder/word"
SLURM_DEV_DIR=$folder/cluster SLURM_DEV_PORT=${SLURM_DEV_PORT:-17800} SLURM_DEV_NODES=4 SLURM_DEV_CPUS=16 SLURM_DEV_USER=$user \
  setsid tests/cluster/slurm-dev-cluster.sh keep <"$folder/hold" >"$folder/word" 2>"$folder/cluster.log" &
keeper=$!
exec {hold}>"$folder/hold"
read -r word <"$folder/word" || true
[ "${word:-}" = up ] || { cat "$folder/cluster.log" >&2; die "the cluster did not start"; }
export SLURM_CONF=$folder/cluster/etc/slurm.conf

# Where the nodes would find them on a real cluster, and commands that are counted.
desk=$folder/desk
mkdir -p "$desk/bin" "$desk/counted"
cp "$bin"/{submit,collect,trainer} "$desk/bin/"
cp -r yamls "$desk/"
for program in sbatch squeue sacct scontrol; do
  printf '#!/bin/sh\necho %s >>%s/calls\nexec %s "$@"\n' "$program" "$desk" "$(command -v "$program")" >"$desk/counted/$program"
  chmod 755 "$desk/counted/$program"
done
cat >"$desk/tiny.yaml" <<YAML
{tessera_model: 1, name: tiny, d_model: 32, n_layers: 1, n_heads: 1, ffn: 64, vocab: 128, max_seq_len: 16, lr: 1.0e-3}
YAML
cat >"$desk/dev.yaml" <<YAML
tessera_cluster: 1
kind: slurm
workspace: $desk/runs
trainer: {path: $desk/bin/trainer}
gpus: {cpu: {per_node: 16, nodes: 4}}
limits: {poll_s: 2}
slurm: {account: dev, prologue: "sleep $wait_s"}
YAML
cat >"$desk/sweep.yaml" <<YAML
tessera_sweep: 1
project: jobs
defaults: {cluster: ./dev.yaml, gpu: cpu, gpus: 1, threads: 1, precision: fp32, steps: 3, warmup: 1, microbatch_size: 1}
matrix:
  model: [./tiny.yaml]
  seq_len: [16]
  seed: [$(seq -s, "$jobs")]
batch: {samples: [1]}
YAML
chown -R "$user:" "$desk"
cd "$desk"
as_user() {
  exec setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups env -u TESSERA_WORKSPACE HOME="$desk" USER="$user" \
    LOGNAME="$user" TESSERA_STATE_DIR="$desk/state" TESSERA_DATA="$desk/yamls" "$@"
}

echo "$jobs jobs, $in_flight in flight, each waits for $wait_s s"
begin=$(date +%s.%N)
(as_user PATH="$desk/counted:$PATH" bin/submit --sweep sweep.yaml --RUN --wait --max-in-flight "$in_flight") >submit.log 2>submit.err {hold}>&- &
submit=$!
code=0
wait "$submit" || code=$?
submit=
echo "$(date +%s.%N) $begin" >time
[ "$code" = 0 ] || { tail -n 5 submit.log submit.err >&2; die "submit failed with exit code $code"; }
(as_user bin/submit --sweep sweep.yaml --RUN) >again.log
(as_user bin/collect jobs) >collect.log 2>&1

# The accounts hear of jobs and of their ends some seconds later.
for _ in $(seq 120); do
  SLURM_TIME_FORMAT=%s sacct --noheader --allocations --parsable2 --starttime="$(date -d '2 days ago' +%F)" \
    --format=JobID,JobName,State,Submit,Start,End >accounts
  [ "$(wc -l <accounts)" -lt "$jobs" ] || grep -qE '\|(PENDING|RUNNING|COMPLETING)\|' accounts || break
  sleep 0.5
done

python3 - "$jobs" "$in_flight" <<'PYTHON'
import collections, csv, datetime, glob, json, statistics, sys

jobs, in_flight = int(sys.argv[1]), int(sys.argv[2])
faults = []


def check(what, found, wanted):
    if found != wanted:
        faults.append(f"{what}: {found}, not {wanted}")


def most_at_once(events):
    """Of (time, +1 or -1); of one moment what ends goes first."""
    now = most = 0
    for _, change in sorted(events):
        now += change
        most = max(most, now)
    return most


slurm = [line.rstrip("\n").split("|") for line in open("accounts")]
check("jobs that Slurm had", len(slurm), jobs)
check("names of jobs that Slurm had", len({name for _, name, *_ in slurm}), jobs)
check("how they ended", {state for _, _, state, *_ in slurm}, {"COMPLETED"})
times = [(int(submit), int(start), int(end)) for *_, submit, start, end in slurm]
at_once = most_at_once([(s, 1) for s, _, _ in times] + [(e, -1) for _, _, e in times])
if at_once > in_flight:
    faults.append(f"{at_once} jobs at once on the cluster, not {in_flight}")

entries = [json.loads(line) for path in glob.glob("runs/jobs/.tessera/ledger/*.jsonl") for line in open(path)]
by_op = collections.defaultdict(list)
for entry in entries:
    by_op[entry["op"]] += [(run["run"], entry) for run in entry.get("runs", [])]
for op in ("intent", "accepted", "final"):
    check(f"runs with the entry {op}", len(by_op[op]), jobs)
    check(f"different runs with the entry {op}", len({run for run, _ in by_op[op]}), jobs)
check("jobs in the ledger", {e["job"] for _, e in by_op["accepted"]}, {job for job, *_ in slurm})
open_now = most_open = 0
for entry in entries:
    open_now += {"accepted": 1, "final": -1}.get(entry["op"], 0)
    most_open = max(most_open, open_now)
if most_open > in_flight:
    faults.append(f"{most_open} jobs at once by the ledger, not {in_flight}")

rows = list(csv.DictReader(open("results/jobs/results.csv")))
check("rows", len(rows), jobs)
check("different runs in the rows", len({row["run"] for row in rows}), jobs)
check("jobs in the rows", {row["job"] for row in rows}, {job for job, *_ in slurm})
check("their statuses", {row["status"] for row in rows}, {"ok"})
check("a second submit", open("again.log").readline().rstrip(), f"jobs: {jobs} runs, 0 to start, {jobs} done before")


def seconds(entry):
    return datetime.datetime.fromisoformat(entry["utc"].replace("Z", "+00:00")).timestamp()


def spread(values, unit, scale=1):
    ordered = sorted(values)
    p95 = ordered[max(0, -(-95 * len(ordered) // 100) - 1)]
    return f"median {scale * statistics.median_low(ordered):.3g} {unit}, 95 % within {scale * p95:.3g} {unit}"


end, begin = (float(word) for word in open("time").read().split())
real = end - begin
intents = dict(by_op["intent"])
handed = [seconds(entry) - seconds(intents[run]) for run, entry in by_op["accepted"]]
wall = [float(row["wall_s"]) for row in rows if row.get("wall_s")]
calls = collections.Counter(open("calls").read().split())
print(f"altogether       {real:.1f} s: {1000 * real / jobs:.0f} ms a job, {jobs / real:.2f} jobs a second")
print(f"a hand-over      {spread(handed, 'ms', 1000)} (files, sbatch, ledger)")
print(f"on the cluster   {spread([e - s for s, _, e in times], 's')}, from submission to end")
if wall:
    print(f"the trainer      {spread(wall, 's')}")
print(f"at once          {at_once} by Slurm's accounts (to the second), {most_open} by the ledger; {in_flight} allowed")
print("submit called    " + ", ".join(f"{n} {name}" for name, n in sorted(calls.items())))
if faults:
    sys.exit("\n".join("slurm_jobs: " + fault for fault in faults))
print(f"none missed, none doubled: {jobs} jobs in Slurm's accounts, in the ledger and in the table, each once and ok")
PYTHON
