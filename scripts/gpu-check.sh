#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks and measures the CUDA device on a machine with a GPU. Needs no network and none of our packages: a trainer, submit
# and collect of the preset gpu-carry, the CUDA libraries of a toolkit or of Python's nvidia packages, and for `pytorch` a
# python3 with PyTorch.
#
#   scripts/gpu-check.sh correct|bench|pytorch DIR
#
#   correct   cuDNN's graph against attention of matrix products, every operation against the CPU, steps of a 125m model
#             against the CPU's, the same bits twice, and operations under compute-sanitizer where it starts (200 s)
#   bench     a sweep of MPT models through submit and collect, then every operation beside a plain copy (320 s)
#   pytorch   125m and 1b in PyTorch, compiled, at the same microbatch and two larger ones, beside our rows: those that
#             `bench` left in DIR, else new ones (240 s)
#
# On the screen: what failed, what was chosen, rows as they are done, totals. In DIR, as far as it came whenever it ends:
#   MODE.txt   what was on the screen, and the tables whole
#   MODE.tgz   all output, and the run logs
#   bench.csv, pytorch.json   the rows
# A DIR that has them is refused.
#
# Variables: TESSERA_CHECK_BIN, the folder of the programs (build/gpu-carry/bin); TESSERA_CHECK_GPU, the name in
# yamls/gpus.yaml of the GPU that is here (h200): points that it has no memory for are left out; TESSERA_CHECK_THREADS, of
# the CPU's part (all). Seconds: TESSERA_CHECK_SECONDS, in all (above); TESSERA_CHECK_LEAST, with less a step is not begun (15);
# TESSERA_CHECK_STALL, after which a case that says nothing is taken for hung (30); TESSERA_CHECK_GRACE, of a run that was told
# to end, in `bench` (12).
# Exit codes: 0 all held, 1 something did not, was not done, or there is no GPU, 2 usage.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
SECONDS=0

fail() { echo "gpu-check.sh: $*" >&2; exit 2; }
case ${1:-} in
  -h | --help) sed -n '2,/^set/{/SPDX/d;s/^# \{0,1\}//p}' "$0"; exit 0 ;;
  correct) budget=200 ;;
  bench) budget=320 ;;
  pytorch) budget=240 ;;
  *) fail "'${1:-}': correct, bench or pytorch, then a folder for what it finds (--help)" ;;
esac
[ $# = 2 ] || fail "usage: scripts/gpu-check.sh correct|bench|pytorch DIR"
what=$1
for name in SECONDS LEAST STALL GRACE THREADS; do
  variable=TESSERA_CHECK_$name
  [[ ${!variable:-1} =~ ^[1-9][0-9]{0,5}$ ]] || fail "$variable: '${!variable}' is no positive number"
done
budget=${TESSERA_CHECK_SECONDS:-$budget}
least=${TESSERA_CHECK_LEAST:-15}
stall=${TESSERA_CHECK_STALL:-30}
bin=${TESSERA_CHECK_BIN:-build/gpu-carry/bin}
gpu=${TESSERA_CHECK_GPU:-h200}
threads=${TESSERA_CHECK_THREADS:-$(nproc)}
for program in trainer submit collect; do
  [ -x "$bin/$program" ] || fail "$bin/$program: not there; build the preset gpu-carry or set TESSERA_CHECK_BIN"
done
bin=$(cd "$bin" && pwd)
grep -q "^$gpu:" yamls/gpus.yaml || fail "TESSERA_CHECK_GPU: '$gpu' is not in yamls/gpus.yaml"
[ "$what" != pytorch ] || command -v python3 >/dev/null || fail "python3 is not here"
for left in "$2/$what".{txt,csv,json,tgz}; do
  [ ! -e "$left" ] || fail "$left is there: what was measured is not measured again; give another folder"
done

# Where the CUDA libraries are, if the loader does not know: Python's packages, each in a folder of its own.
if [ -z "${TESSERA_CUDA_LIBRARIES:-}" ] && command -v python3 >/dev/null; then
  TESSERA_CUDA_LIBRARIES=$(python3 - <<'PYTHON'
import glob, site, sys
folders = [f for root in [*site.getsitepackages(), *sys.path] if root for f in glob.glob(root + "/nvidia/*/lib")]
print(":".join(dict.fromkeys(folders)))
PYTHON
  )
  export TESSERA_CUDA_LIBRARIES
fi

capabilities=$(timeout -k 5 60 "$bin/trainer" --capabilities)
none=$(sed -n 's/^ *"none": "\(.*\)",*$/\1/p' <<<"$capabilities")
if [ -z "$capabilities" ] || [ -n "$none" ]; then
  echo "gpu-check.sh: no GPU to check: ${none:-trainer --capabilities says nothing}" >&2
  exit 1
fi

mkdir -p "$2" || fail "$2: cannot be made"
out=$(cd "$2" && pwd -P)
work=$(mktemp -d) || fail "no temporary folder can be made"
work=$(cd "$work" && pwd -P)
logs=$work/logs
mkdir "$logs"
# Nothing of this machine's own sweeps is touched.
export TESSERA_STATE_DIR=$work/state XDG_CACHE_HOME=$work/cache
worst=0
grace=5    # seconds from the end of a time limit to KILL
reserve=3  # seconds that the end of this check takes
child=     # the process group that `limited` waits for
totals=()

# say TEXT: on the screen and in DIR/MODE.txt.
say() { printf '%s\n' "$*" | tee -a "$out/$what.txt"; }

# excerpt LINES < TEXT: the first of them, cut.
excerpt() {
  local line count=0
  while IFS= read -r line; do
    count=$((count + 1))
    [ "$count" -gt "$1" ] || say "${line:0:130}"
  done
  [ "$count" -le "$1" ] || say "     ... and $((count - $1)) more in $what.tgz"
}

# total NAME TEXT: also repeated at the end.
total() {
  say "-- $1: ${2:0:250}"
  totals+=("$1: ${2:0:250}")
}

# Whole after each step: whoever stops this check may not let it come to its end.
archive() {
  local parts=(logs)
  [ ! -d "$work/runs" ] || parts+=(runs)
  tar -C "$work" -czf "$work/all.tgz" "${parts[@]}" 2>/dev/null
  cp "$work/all.tgz" "$out/$what.tgz"
}

# The trainers of this check's runs that are alive, a process id a line.
runs_alive() {
  local file pid
  for file in "$work"/runs/*/*/run.*.pid; do
    [ -e "$file" ] || continue
    pid=$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' "$file")
    { tr '\0' '\n' <"/proc/$pid/cmdline" | grep -qxF "${file%.pid}.json" && echo "$pid"; } 2>/dev/null
  done
}

# end_runs SECONDS: submit starts each trainer in a session of its own, which no limit here reaches, and one that hangs keeps
# the GPU. Those that are left after this time are killed.
end_runs() {
  local pid until=$((SECONDS + $1))
  while [ "$SECONDS" -lt "$until" ] && [ -n "$(runs_alive)" ]; do sleep 0.5; done
  for pid in $(runs_alive); do
    say "-- a run is alive behind its submit: killed"
    kill -KILL -- "-$pid" 2>/dev/null || kill -KILL "$pid"
  done
  until=$((SECONDS + 5))
  while [ "$SECONDS" -lt "$until" ] && [ -n "$(runs_alive)" ]; do sleep 0.2; done
  [ -z "$(runs_alive)" ] || say "-- a killed run still has the GPU"
}

finish() {
  local code=$?
  trap '' TERM INT HUP
  trap - EXIT
  [ -z "$child" ] || kill -KILL -- "-$child" 2>/dev/null
  end_runs 0
  archive
  rm -rf "$work"
  exit "$code"
}
trap finish EXIT
trap 'say "-- told to end"; exit 143' TERM
trap 'exit 130' INT HUP

# allow LIMIT NAME: sets `seconds` to what a step may take, of what is left; false if that is too little.
allow() {
  local left=$((budget - SECONDS - reserve))
  seconds=$(($1 < left ? $1 : left))
  [ "$seconds" -lt "$least" ] || return 0
  total "$2" "left out, $((left > 0 ? left : 0)) s are left"
  worst=1
  return 1
}

# limited SECONDS NAME [--stall N] [--live] COMMAND...: sets `code`, 124 or 137 where its time was over, and `hung`. Output is
# in $now.out and $now.err, and added to logs/NAME.txt and NAME.err. --stall: killed after N seconds without output. --live:
# printed as it comes.
now=$work/now
limited() {
  local limit=$1 name=$2 quiet=0 live=false shown=0 size before=-1 since=$SECONDS kill_after
  shift 2
  [ "$1" != --stall ] || { quiet=$2; shift 2; }
  [ "$1" != --live ] || { live=true; shift; }
  kill_after=$((limit / 2 < grace ? limit / 2 + 1 : grace))
  hung=false
  timeout -k "$kill_after" $((limit > kill_after ? limit - kill_after : 1)) "$@" >"$now.out" 2>"$now.err" </dev/null &
  child=$!
  while kill -0 "$child" 2>/dev/null; do
    sleep 0.2
    size=$(cat "$now.out" "$now.err" | wc -c)
    [ "$size" = "$before" ] || since=$SECONDS
    before=$size
    if $live; then
      tail -c "+$((shown + 1))" "$now.out" >"$now.new"
      shown=$((shown + $(wc -c <"$now.new")))
      tee -a "$out/$what.txt" <"$now.new"
    fi
    if [ "$quiet" -gt 0 ] && [ $((SECONDS - since)) -ge "$quiet" ]; then
      hung=true
      kill -KILL -- "-$child" 2>/dev/null
      break
    fi
  done
  { wait "$child"; } 2>/dev/null
  code=$?
  child=
  if $live; then tail -c "+$((shown + 1))" "$now.out" | tee -a "$out/$what.txt"; fi
  cat "$now.out" >>"$logs/$name.txt"
  cat "$now.err" >>"$logs/$name.err"
}

# selftest LIMIT PART [--stall N]: a part of --selftest. Behind a case that took the process or the GPU's context with it, it
# goes on in a new one, at most five times.
selftest() {
  local limit=$1 part=$2 until begin=$SECONDS from=() at number why held failed restarts=0 note=
  shift 2
  printf '\n'
  allow "$limit" "$part" || return
  until=$((SECONDS + seconds))
  while :; do
    limited $((until - SECONDS)) "$part" "$@" "$bin/trainer" --selftest --parts "$part" --gpu --threads "$threads" "${from[@]}"
    [ "$code" != 0 ] || break
    at=$(grep '^case [0-9]' "$now.err" | tail -1)
    why=
    if $hung; then
      why="says nothing for $stall s, killed"
    elif grep -q '^FAIL.*the GPU is in error' "$now.out"; then
      why=said
    elif [ "$code" = 124 ] || [ "$code" = 137 ]; then
      note=", not done after $seconds s${at:+, in $at}"
      break
    elif [ "$code" -gt 128 ]; then
      why="ended the process by signal $((code - 128))"
    elif ! grep -q '^FAIL' "$now.out"; then
      note=", exit code $code: $(tail -1 "$now.err")"
      break
    else
      break  # what fails is said
    fi
    [ "$why" = said ] || echo "FAIL ${at:-before its first case}: $why" >>"$logs/$part.txt"
    number=${at#case }
    number=${number%% *}
    if [ -z "$number" ] || [ "$restarts" = 5 ]; then
      note=", the cases behind it were not run"
      break
    elif [ $((until - SECONDS)) -lt "$least" ]; then
      note=", no time is left for the cases behind it"
      break
    fi
    restarts=$((restarts + 1))
    from=(--from $((number + 1)))
  done
  grep '^FAIL' "$logs/$part.txt" | excerpt 8
  grep '^     ' "$logs/$part.txt" | excerpt 6
  held=$(grep -c '^ok ' "$logs/$part.txt")
  failed=$(grep -c '^FAIL' "$logs/$part.txt")
  [ "$failed" = 0 ] && [ -z "$note" ] && [ "$held" -gt 0 ] || worst=1
  [ "$restarts" = 0 ] || note=", begun anew $restarts times$note"
  total "$part" "$held ok, $failed FAIL$note ($((SECONDS - begin)) s)"
  archive
}

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)

# sanitize TOOL FLAGS...: operations on small cases. Calls that libraries try and that fail are no faults of ours.
sanitize() {
  local tool=$1 name=sanitizer-$1 found held
  shift
  printf '\n'
  if [ -z "$sanitizer" ]; then
    total "$name" "not run, compute-sanitizer is not here"
    return
  fi
  # That it does not fit is no fault.
  if [ $((budget - SECONDS - reserve)) -lt "$least" ]; then
    total "$name" "not run, no time is left"
    return
  fi
  allow 60 "$name"
  limited "$seconds" "$name" "$sanitizer" --tool "$tool" --report-api-errors no --error-exitcode 99 "$@" \
    "$bin/trainer" --selftest --parts operations --gpu --small
  held=$(grep -c '^ok ' "$now.out")
  # Whatever ended it: what it has found counts.
  found=$(cat "$now.out" "$now.err" | grep -v SUMMARY |
    grep -E '^========= (Invalid|Misaligned|Uninit|Out-of-range|Stack overflow|Error: Race|.*[Hh]azard)')
  if [ -n "$found" ]; then
    excerpt 5 <<<"$found"
    total "$name" "FAIL, $(wc -l <<<"$found") findings, $held checks held"
    worst=1
  elif [ "$code" = 0 ]; then
    total "$name" "$held ok, $(cat "$now.out" "$now.err" | grep -o '[A-Z]* SUMMARY: .*' | tail -1)"
  elif [ "$code" = 124 ] || [ "$code" = 137 ]; then
    total "$name" "not done after $seconds s, $held checks held, nothing found"
  elif ! grep -q '^case ' "$now.err" && [ "$held" = 0 ] && ! grep -q '^FAIL' "$now.out"; then
    total "$name" "does not start here: $(cat "$now.out" "$now.err" | grep '^=========.*[a-z]' | grep -m 1 'not supported' ||
      cat "$now.out" "$now.err" | grep -m 1 '[a-z]')"
  else
    grep '^FAIL' "$now.out" | excerpt 5
    total "$name" "FAIL, exit code $code, $held checks held: $(tail -1 "$now.err")"
    worst=1
  fi
  archive
}

correct() {
  local filter=--kernel-regex
  echo "$capabilities" >"$logs/capabilities.json"
  sed -n '/"trainer"/,/"commit"/p; /"cuda"/,/}/p' "$logs/capabilities.json" | excerpt 20
  selftest 90 attention --stall "$stall"
  selftest 90 operations --stall "$stall"
  selftest 90 training
  selftest 45 bits
  # The flag had this name until 2023.3.
  if [ -n "$sanitizer" ] && "$sanitizer" --help 2>&1 | grep -q -- --kernel-name; then filter=--kernel-name; fi
  sanitize memcheck
  sanitize racecheck "$filter" kns=tessera
}

# rows FILTER: prints the table's rows of these runs; the table of all is in DIR/bench.csv.
header=
rows() {
  local table=$work/table line
  timeout -k 5 20 "$bin/collect" check --workspace "$work/runs" -s "$table/all" >"$logs/collect.txt" 2>"$logs/collect.err" &&
    cp "$table/all.csv" "$out/bench.csv"
  timeout -k 5 20 "$bin/collect" check --workspace "$work/runs" --filters "$1" -s "$table/row" >"$now.out" 2>"$now.err" ||
    { say "-- no row: $(tail -1 "$now.err")"; worst=1; return; }
  while IFS= read -r line; do
    case $line in
      "| ---"*) ;;
      "| Model "*) [ "$line" = "$header" ] || say "$line"; header=$line ;;
      "|"*) say "$line" ;;
    esac
  done <"$table/row.md"
}

# sweep LIMIT MODEL SEQ FLAGS...
sweep() {
  local limit=$1 name=$2-s$3 model=$2 seq=$3 begin=$SECONDS note
  shift 3
  printf '\n'
  allow "$limit" "$name" || return
  limited "$seconds" "submit-$name" "${points[@]}" -m "$model" --seq_lens "$seq" "$@" --RUN
  # Of a submit that was killed the trainer has been told, and had its time.
  case $code in
    0) note=ok; end_runs "$grace" ;;
    124 | 137) note="not done after $seconds s"; worst=1; end_runs 0 ;;
    9) note="did not end ok"; worst=1; end_runs "$grace" ;;
    *) note="exit code $code: $(tail -1 "$now.err")"; worst=1; end_runs "$grace" ;;
  esac
  rows "$name-1g"
  total "$name" "$note ($((SECONDS - begin)) s)"
  archive
}

operations_bench() {
  local begin=$SECONDS note='' spec
  printf '\n'
  allow 100 operations-bench || return
  # In sizes whose tensors are larger than the caches.
  limited 20 render "${points[@]}" -m 3b --seq_lens 2048 --batch_sizes 32 --microbatch_size 8 --render "$work/render"
  spec=$(find "$work/render" -name 'run.*.json' 2>/dev/null | head -1)
  limited "$seconds" operations-bench "$bin/trainer" --bench-ops --gpu --spec "$spec"
  cat "$now.out" >>"$out/$what.txt"
  head -80 "$now.out" | cut -c 1-100
  case $code in
    0) ;;
    124 | 137) note=", not done after $seconds s"; worst=1 ;;
    *) note=", exit code $code: $(tail -1 "$now.err")"; worst=1 ;;
  esac
  total operations-bench "$(grep -cE ' (f32|bf16) ' "$now.out") rows$note ($((SECONDS - begin)) s)"
}

bench() {
  grace=${TESSERA_CHECK_GRACE:-12}  # a trainer that is told to end does so behind the step that it is in
  cat >"$work/box.yaml" <<YAML
tessera_cluster: 1
kind: local
workspace: $work/runs
gpus: {$gpu: {per_node: 1}}
YAML
  points=("$bin/submit" -c "$work/box.yaml" --gpu_types "$gpu" -g 1 -t bf16 --project check)
  # Tokens a step: 256k at 125m, 64k at 1b and 3b, 48k at 7b. Steps are minima, but for 7b: its own take long enough.
  reserve=6
  sweep 75 125m 2048 --batch_sizes 128 --microbatch_size 32 --steps 13 --warmup 3
  sweep 75 1b 2048 --batch_sizes 32 --microbatch_size 16 --steps 13 --warmup 3
  reserve=45  # for the operations
  sweep 75 1b 8192 --batch_sizes 8 --microbatch_size 4 --steps 13 --warmup 3
  sweep 90 3b 2048 --batch_sizes 32 --microbatch_size 8 --steps 13 --warmup 3
  sweep 150 7b 2048 --batch_sizes 24 --microbatch_size 2 --steps 9 --warmup 2 --exact-steps
  reserve=6
  operations_bench
  [ ! -e "$work/table/all.md" ] || cat "$work/table/all.md" >>"$out/$what.txt"
}

pytorch() {
  local begin=$SECONDS
  allow "$budget" pytorch || return
  limited "$seconds" pytorch --live python3 -u bench/gpu_pytorch.py --out "$out/pytorch.json" --rows "$out/bench.csv" \
    --programs "$bin" --work "$work" --gpu "$gpu" --seconds $((seconds > 2 * grace ? seconds - 2 * grace : 1))
  end_runs 0
  case $code in
    0) total pytorch "done ($((SECONDS - begin)) s)" ;;
    124 | 137) worst=1; total pytorch "not done after $seconds s" ;;
    *) worst=1; tail -5 "$now.err" | excerpt 5; total pytorch "exit code $code ($((SECONDS - begin)) s)" ;;
  esac
}

: >"$out/$what.txt"
built=$("$bin/submit" --version | sed -n 's/^submit [^ ]* //p')
head=$(git rev-parse --short=12 HEAD 2>/dev/null)
if [ -n "$head" ] && [ "$built" != "$head" ]; then
  say "-- warning: the programs are built from ${built:-an unknown commit}, these sources are $head"
fi
"$what"
printf '\n'
say "== $what: $([ "$worst" = 0 ] && echo "all held" || echo "NOT all held") ($SECONDS s of $budget)"
for line in "${totals[@]}"; do say "$line"; done
exit "$worst"
