#!/usr/bin/env bash
# Checks and measures the CUDA device on a machine with a GPU. Needs no network and none of our packages: a trainer, submit
# and collect of the preset gpu-carry, the CUDA libraries of a toolkit or of Python's nvidia packages, and for `pytorch` a
# python3 with PyTorch.
#
#   scripts/gpu-check.sh correct|bench|pytorch DIR
#
#   correct   cuDNN's graph against attention of matrix products, every operation against the CPU, the same under
#             compute-sanitizer where it starts, steps of a 125m model against the CPU's, the same bits twice (3 minutes)
#   bench     a sweep of MPT models through submit and collect, then every operation beside a plain copy (6 minutes)
#   pytorch   125m and 1b in PyTorch, compiled, at the same microbatch and two larger ones, beside our rows (6 minutes)
#
# Rows are printed as they are done and kept in DIR. Variables: TESSERA_CHECK_BIN, the folder of the programs (build/gpu-carry/bin);
# TESSERA_CHECK_GPU, the name in yamls/gpus.yaml of the GPU that is here (h200): points that it has no memory for are left out;
# TESSERA_CHECK_THREADS, of the CPU's part (all).
# Exit codes: 0 all held, 1 something did not or there is no GPU, 2 usage.
set -uo pipefail
cd "$(dirname "$0")/.."

fail() { echo "gpu-check.sh: $*" >&2; exit 2; }
case ${1:-} in
  -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0 ;;
  correct | bench | pytorch) [ $# = 2 ] || fail "usage: scripts/gpu-check.sh correct|bench|pytorch DIR" ;;
  *) fail "'${1:-}': correct, bench or pytorch, then a folder for what it finds (--help)" ;;
esac
what=$1
bin=${TESSERA_CHECK_BIN:-build/gpu-carry/bin}
gpu=${TESSERA_CHECK_GPU:-h200}
threads=${TESSERA_CHECK_THREADS:-$(nproc)}
for program in trainer submit collect; do
  [ -x "$bin/$program" ] || fail "$bin/$program: not there; build the preset gpu-carry or set TESSERA_CHECK_BIN"
done
bin=$(cd "$bin" && pwd)
grep -q "^$gpu:" yamls/gpus.yaml || fail "TESSERA_CHECK_GPU: '$gpu' is not in yamls/gpus.yaml"

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
worst=0

# step SECONDS NAME COMMAND...: its output goes to the screen and to DIR/NAME.txt.
step() {
  local seconds=$1 name=$2 begin code
  shift 2
  begin=$(date +%s)
  printf '\n== %s\n' "$name"
  timeout -k 40 "$seconds" "$@" 2>&1 | tee "$out/$name.txt"
  code=${PIPESTATUS[0]}
  if [ "$code" != 0 ]; then
    [ "$code" = 124 ] && echo "-- $name: not done after $seconds s" || echo "-- $name: exit code $code"
    worst=1
  fi
  printf -- '-- %s: %s s\n' "$name" $(($(date +%s) - begin))
}

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)

# sanitize TOOL FLAGS...: our kernels on small cases. Calls that libraries try and that fail are no faults of ours.
sanitize() {
  local tool=$1 log code
  shift
  log=$out/sanitizer-$tool.txt
  if [ -z "$sanitizer" ]; then
    echo "-- compute-sanitizer is not here: $tool was not run"
    return
  fi
  timeout -k 10 60 "$sanitizer" --tool "$tool" --report-api-errors no --error-exitcode 99 "$@" \
    "$bin/trainer" --selftest --parts operations --gpu --small >"$log" 2>&1
  code=$?
  case $code in
    0) echo "ok   compute-sanitizer $tool: $(grep -c '^ok' "$log") checks, $(grep -o 'ERROR SUMMARY: .*' "$log" | tail -1)" ;;
    99) echo "FAIL compute-sanitizer $tool, see $log"; grep -m 5 '=========' "$log"; worst=1 ;;
    124 | 137) echo "-- compute-sanitizer $tool: not done after 60 s, $(grep -c '^ok' "$log") checks held" ;;
    *) if grep -q 'Device not supported' "$log"; then
         echo "-- compute-sanitizer does not start here: $(grep -m 1 -o 'Device not supported.*' "$log")"
       else
         echo "FAIL compute-sanitizer $tool: exit code $code, see $log"; tail -3 "$log"; worst=1
       fi ;;
  esac
}

correct() {
  "$bin/trainer" --capabilities | tee "$out/capabilities.json" | sed -n '/"trainer"/,/"commit"/p; /"cuda"/,/}/p'
  step 60 attention "$bin/trainer" --selftest --parts attention --gpu --threads "$threads"
  step 90 operations "$bin/trainer" --selftest --parts operations --gpu --threads "$threads"
  printf '\n== compute-sanitizer\n'
  sanitize memcheck
  sanitize racecheck --kernel-regex kns=tessera
  sanitize initcheck --kernel-regex kns=tessera
  step 90 training "$bin/trainer" --selftest --parts training --gpu --threads "$threads"
  step 30 bits "$bin/trainer" --selftest --parts bits --gpu --threads "$threads"
}

# The cluster file of this machine, and a submit that has what all points share.
cluster_file() {
  cat >"$out/box.yaml" <<YAML
tessera_cluster: 1
kind: local
workspace: $out/runs
gpus: {$gpu: {per_node: 1}}
YAML
  points=("$bin/submit" -c "$out/box.yaml" --gpu_types "$gpu" -g 1 -t bf16 --project check --steps 13 --warmup 3)
}

# A run that a time-out left alone still has the GPU's memory.
wait_for_gpu() {
  local tries
  for tries in $(seq 60); do
    pgrep -f "^$bin/trainer --spec" >/dev/null || return 0
    [ "$tries" = 1 ] && echo "-- waiting for the run before"
    sleep 1
  done
  echo "-- the run before still has the GPU"
}

# sweep SECONDS NAME FLAGS...
sweep() {
  local seconds=$1 name=$2
  shift 2
  wait_for_gpu
  step "$seconds" "submit-$name" "${points[@]}" "$@" --RUN
}

bench() {
  cluster_file
  # Tokens a step: 256k at 125m, 64k at 1b and 3b, 48k at 7b.
  sweep 75 125m -m 125m --batch_sizes 128 --microbatch_size 32
  sweep 75 1b -m 1b --batch_sizes 32 --microbatch_size 16
  sweep 90 3b -m 3b --batch_sizes 32 --microbatch_size 8
  sweep 150 7b -m 7b --batch_sizes 24 --microbatch_size 2
  sweep 75 1b-8k -m 1b --seq_lens 8192 --batch_sizes 8 --microbatch_size 4
  wait_for_gpu
  step 30 table "$bin/collect" check --workspace "$out/runs"
  # Operations in sizes whose tensors are larger than the caches.
  "${points[@]}" -m 3b --batch_sizes 32 --microbatch_size 8 --render "$out/render" >"$out/render.txt" 2>&1
  step 150 operations-bench "$bin/trainer" --bench-ops --gpu --spec "$(find "$out/render" -name 'run.*.json' | head -1)"
  tar -C "$out" -czf "$out/runs.tgz" runs
}

pytorch() {
  command -v python3 >/dev/null || fail "no python3"
  step 420 pytorch python3 bench/gpu_pytorch.py --out "$out/pytorch.json" --programs "$bin" --gpu "$gpu" --seconds 380
}

none=$("$bin/trainer" --capabilities | sed -n 's/^ *"none": "\(.*\)",*$/\1/p')
if [ -n "$none" ]; then
  echo "gpu-check.sh: no GPU to check: $none" >&2
  exit 1
fi
mkdir -p "$2" && out=$(cd "$2" && pwd) || fail "$2: cannot be made"
# Nothing of this machine's own sweeps is touched.
export TESSERA_STATE_DIR=$out/state XDG_CACHE_HOME=$out/cache
"$what"
exit $worst
