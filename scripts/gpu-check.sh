#!/usr/bin/env bash
# Checks and measures the CUDA device on a machine with a GPU. Needs no network and none of our packages: a trainer, submit
# and collect of the preset gpu-carry, the CUDA libraries of a toolkit or of Python's nvidia packages, and for `pytorch` a
# python3 with PyTorch.
#
#   scripts/gpu-check.sh correct|bench|pytorch DIR
#
#   correct   cuDNN's graph against attention of matrix products, every operation against the CPU, the same under
#             compute-sanitizer where it starts, steps of a 125m model against the CPU's, the same bits twice (3 minutes)
#   bench     a sweep of MPT models through submit and collect, then every operation beside a plain copy (5 minutes)
#   pytorch   125m and 1b in PyTorch, compiled, at the same microbatch and two larger ones, beside our rows (4 minutes)
#
# Rows are printed as they are done and kept in DIR. Variables: TESSERA_CHECK_BIN, the folder of the programs (build/gpu-carry/bin);
# TESSERA_CHECK_GPU, the catalogue's name of the GPU (h200); TESSERA_CHECK_THREADS, of the CPU's part (all).
# Exit codes: 0 all held, 1 something did not, 2 usage.
set -uo pipefail
cd "$(dirname "$0")/.."

fail() { echo "gpu-check.sh: $*" >&2; exit 2; }
[ $# = 2 ] || fail "usage: scripts/gpu-check.sh correct|bench|pytorch DIR"
what=$1
mkdir -p "$2" && out=$(cd "$2" && pwd) || fail "$2: cannot be made"
bin=${TESSERA_CHECK_BIN:-build/gpu-carry/bin}
gpu=${TESSERA_CHECK_GPU:-h200}
threads=${TESSERA_CHECK_THREADS:-$(nproc)}
[ -x "$bin/trainer" ] || fail "$bin/trainer: not there; build the preset gpu-carry or set TESSERA_CHECK_BIN"
bin=$(cd "$bin" && pwd)

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
# Nothing of this machine's own sweeps is touched.
export TESSERA_STATE_DIR=$out/state XDG_CACHE_HOME=$out/cache
worst=0

# step SECONDS NAME COMMAND...: its output goes to the screen and to DIR/NAME.txt.
step() {
  local seconds=$1 name=$2 begin code
  shift 2
  begin=$(date +%s)
  printf '\n== %s\n' "$name"
  timeout -k 10 "$seconds" "$@" 2>&1 | tee "$out/$name.txt"
  code=${PIPESTATUS[0]}
  if [ "$code" != 0 ]; then
    [ "$code" = 124 ] && echo "-- $name: not done after $seconds s" || echo "-- $name: exit code $code"
    worst=1
  fi
  printf -- '-- %s: %s s\n' "$name" $(($(date +%s) - begin))
}

sanitize() {
  local tool=$1 log
  log=$out/sanitizer-$tool.txt
  if ! command -v compute-sanitizer >/dev/null; then
    echo "-- compute-sanitizer is not here: $tool was not run"
    return
  fi
  timeout -k 10 40 compute-sanitizer --tool "$tool" --error-exitcode 99 \
    "$bin/trainer" --selftest --parts operations --gpu --small >"$log" 2>&1
  case $? in
    0) echo "ok   compute-sanitizer $tool: $(grep -c '^ok' "$log") checks, $(grep -o 'ERROR SUMMARY: .*' "$log" | tail -1)" ;;
    99) echo "FAIL compute-sanitizer $tool, see $log"; grep -m 5 '=========' "$log"; worst=1 ;;
    124) echo "-- compute-sanitizer $tool: not done after 40 s" ;;
    *) if grep -q 'Device not supported\|Target application terminated before' "$log"; then
         echo "-- compute-sanitizer does not start here: $(grep -m 1 -o 'Device not supported.*\|Error:.*' "$log")"
       else
         echo "FAIL compute-sanitizer $tool, see $log"; tail -3 "$log"; worst=1
       fi ;;
  esac
}

correct() {
  "$bin/trainer" --capabilities | tee "$out/capabilities.json" | grep -E '"(trainer|commit|cuda|driver|cudnn|gpus?|none)"'
  step 60 attention "$bin/trainer" --selftest --parts attention --gpu --threads "$threads"
  step 90 operations "$bin/trainer" --selftest --parts operations --gpu --threads "$threads"
  printf '\n== compute-sanitizer\n'
  for tool in memcheck racecheck initcheck; do sanitize "$tool"; done
  step 90 training "$bin/trainer" --selftest --parts training --gpu --threads "$threads"
  step 30 bits "$bin/trainer" --selftest --parts bits --gpu --threads "$threads"
}

cluster_file() {
  cat >"$out/box.yaml" <<YAML
tessera_cluster: 1
kind: local
workspace: $out/runs
gpus: {$gpu: {per_node: 1}}
YAML
}

# sweep PROJECT SECONDS FLAGS...: submits, waits, and prints the table.
sweep() {
  local project=$1 seconds=$2
  shift 2
  step "$seconds" "submit-$project" "$bin/submit" -c "$out/box.yaml" --gpu_types "$gpu" -g 1 -t amp_bf16 --project "$project" \
    --steps 13 --warmup 3 --RUN "$@"
}

bench() {
  cluster_file
  # Tokens a step: 256k at 125m, 64k at 1b and 3b, 48k at 7b.
  sweep check 75 -m 125m --batch_sizes 128 --microbatch_size 32
  sweep check 60 -m 1b --batch_sizes 32 --microbatch_size 16
  sweep check 60 -m 3b --batch_sizes 32 --microbatch_size 8
  sweep check 75 -m 7b --batch_sizes 24 --microbatch_size 2
  sweep check 60 -m 1b --seq_lens 8192 --batch_sizes 8 --microbatch_size 4
  step 30 table "$bin/collect" check --workspace "$out/runs"
  step 60 operations-bench "$bin/trainer" --bench-ops --gpu
}

pytorch() {
  command -v python3 >/dev/null || fail "no python3"
  step 240 pytorch python3 bench/gpu_pytorch.py --out "$out/pytorch.json" --programs "$bin" --gpu "$gpu" --seconds 220
}

case $what in
  correct | bench | pytorch) "$what" ;;
  *) fail "$what: correct, bench or pytorch" ;;
esac
exit $worst
