#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/gpu-check.sh from outside, on a machine without a GPU: programs/trainer stands for one that has a GPU and goes wrong in
# the ways that a GPU can; submit, collect and what trains its runs are the real ones, of TESSERA_BIN.
set -u
cd "$(dirname "$0")/../.." || exit 2
REAL=$(cd "${TESSERA_BIN:-build/release/bin}" && pwd) || exit 2
export REAL
here=$PWD/tests/scripts
all=$(mktemp -d)
trap 'rm -rf "$all"' EXIT
cat >"$all/tiny" <<'YAML'
tessera_model: 1
name: NAME
d_model: 16
n_layers: 1
n_heads: 1
n_kv_heads: 1
head_dim: 16
ffn: FFN
vocab: 64
max_seq_len: 8192
norm: layernorm
positions: learned
activation: gelu_erf
biases: {qkv: true, out: true, mlp: true, norm: true}
tied: true
lr: 1.0e-3
YAML

# prepare CASE: a folder for it, with programs to run and a place for what it leaves.
prepare() {
  box=$all/$1
  mkdir -p "$box/bin" "$box/tmp" "$box/models" "$box/path"
  cp "$here/programs/trainer" "$here/programs/submit" "$box/bin"
  ln -s "$REAL/collect" "$box/bin/collect"
  cp "$all/tiny" "$box/models/tiny"
  : >"$box/calls"
}
with_sanitizer() { cp "$here/programs/compute-sanitizer" "$box/path"; }

# check FAKE MODE [VARIABLE=VALUE...]: runs it; its screen is in $box/screen, its code in $box/code.
check() {
  local fake=$1 mode=$2
  shift 2
  env FAKE="$fake" CALLS="$box/calls" MODELS="$box/models" TMPDIR="$box/tmp" PATH="$box/path:$PATH" TESSERA_CHECK_BIN="$box/bin" \
    TESSERA_CHECK_THREADS=1 TESSERA_CUDA_LIBRARIES=/nowhere PYTHONPATH="$here/stubs" "$@" scripts/gpu-check.sh "$mode" "$box/out" >"$box/screen" 2>&1
  echo $? >"$box/code"
}

# What must hold of a case that has ended. A line is the first thing that does not.
wrong() {
  echo "$(basename "$box"): $*"
  [ -e "$box/shown" ] || sed 's/^/    | /' "$box/screen"
  touch "$box/shown"
  echo x >>"$all/wrong"
}
ended_with() { [ "$(cat "$box/code")" = "$1" ] || wrong "exit code $(cat "$box/code"), not $1"; }
says() { grep -qE -- "$1" "$box/screen" || wrong "does not say '$1'"; }
says_not() { ! grep -qE -- "$1" "$box/screen" || wrong "says '$1'"; }
called() { grep -qE -- "$1" "$box/calls" || wrong "never called '$1': $(tr '\n' ';' <"$box/calls")"; }
called_not() { ! grep -qE -- "$1" "$box/calls" || wrong "called '$1'"; }
archived() { tar -xzOf "$box/out/$1" "$2" | grep -qE -- "$3" || wrong "$1, $2 has no '$3'"; }
left_files() {
  local found
  found=$(cd "$box/out" && find . -mindepth 1 | sort | tr '\n' ' ')
  [ "$found" = "$1 " ] || wrong "left $found, not $1"
}
cleaned_up() {
  [ -z "$(ls "$box/tmp")" ] || wrong "left in the temporary folder: $(ls "$box/tmp")"
  ! pgrep -f -- "$box/" >/dev/null || wrong "left running: $(pgrep -af -- "$box/")"
  [ "$(wc -c <"$box/screen")" -lt 12000 ] || wrong "the screen has $(wc -c <"$box/screen") bytes"
}

all_well() {
  prepare all-well
  with_sanitizer
  check "" correct
  ended_with 0
  says '^attention: 8 ok, 0 FAIL'
  says 'cuDNN engine 4'
  says '^sanitizer-memcheck: 1 ok, ERROR SUMMARY: 0 errors'
  says '^sanitizer-racecheck: 1 ok, RACECHECK SUMMARY: 0 hazards'
  says_not '[1-9][0-9]* FAIL|^FAIL'
  called 'sanitizer --tool racecheck .*--kernel-name kns=tessera'
  called_not 'initcheck'
  left_files './correct.tgz ./correct.txt'
  cleaned_up
}

faults_behind_each_other() {
  prepare faults-behind-each-other
  with_sanitizer
  check "fail:operations:2 sticky:operations:3 hang:operations:5 crash:operations:7 race" correct TESSERA_CHECK_STALL=2 TESSERA_CHECK_LEAST=2
  ended_with 1
  says '^FAIL name-2 bf16'
  says '^FAIL name-3: the GPU is in error'
  says '^FAIL case 5 name-5: says nothing for 2 s, killed'
  says '^FAIL case 7 name-7: ended the process by signal 11'
  says '^operations: 4 ok, 4 FAIL, begun anew 3 times'
  says '^training: 8 ok, 0 FAIL'
  says '^sanitizer-racecheck: FAIL, 1 findings'
  for from in 1 4 6 8; do called "^operations $from\$"; done
  archived correct.tgz logs/operations.txt '^ok   name-8'
  archived correct.tgz logs/operations.err '^case 8'
  cleaned_up
}

sticky_without_end() {
  prepare sticky-without-end
  check "$(for n in 1 2 3 4 5 6 7 8; do echo "sticky:operations:$n"; done)" correct
  ended_with 1
  says '^operations: 0 ok, 6 FAIL, begun anew 5 times, the cases behind it were not run'
  called '^operations 6$'
  called_not '^operations 7$'
  says '^sanitizer-memcheck: (not run, compute-sanitizer is not here|does not start)'
  cleaned_up
}

out_of_time() {
  prepare out-of-time
  check "deaf:attention:2" correct TESSERA_CHECK_SECONDS=11 TESSERA_CHECK_LEAST=3
  ended_with 1
  says '^attention: 1 ok, 0 FAIL, not done after [3-8] s, in case 2 name-2'
  says '^bits: left out, [0-2] s are left'
  cleaned_up
}

finding_before_time_is_over() {
  prepare finding-before-time-is-over
  with_sanitizer
  check "finding-then-hang" correct TESSERA_CHECK_SECONDS=18 TESSERA_CHECK_LEAST=2
  ended_with 1
  says '^========= Invalid __global__ write'
  says '^sanitizer-memcheck: FAIL, 1 findings, 1 checks held'
  cleaned_up
}

sanitizer_that_does_not_start() {
  prepare sanitizer-that-does-not-start
  with_sanitizer
  check "unsupported old" correct
  ended_with 0
  says '^sanitizer-memcheck: does not start here: .*Device not supported'
  called 'sanitizer --tool racecheck .*--kernel-regex kns=tessera'
  cleaned_up
}

bench_of_all_models() {
  prepare bench-of-all-models
  check "" bench
  ended_with 0
  [ "$(grep -c '^| Model ' "$box/screen")" = 1 ] || wrong "not one header"
  [ "$(grep -c '^| custom' "$box/screen")" = 5 ] || wrong "not five rows"
  [ "$(grep -c ',ok,' "$box/out/bench.csv")" = 5 ] || wrong "bench.csv has not five rows: $(cat "$box/out/bench.csv")"
  says '^| Model .* MFU '
  says '^7b-s2048: ok'
  says '^operations-bench: 3 rows'
  grep -q '^# Results of check' "$box/out/bench.txt" || wrong "bench.txt has no table"
  archived bench.tgz "$(tar -tzf "$box/out/bench.tgz" | grep -m 1 'runs/check/.*/log\.')" '"t":"footer"'
  left_files './bench.csv ./bench.tgz ./bench.txt'
  cleaned_up
  [ ! results -nt "$all/tiny" ] || wrong "wrote into the repository"
  check "" bench
  ended_with 2
  says 'bench.txt is there: what was measured is not measured again'
}

run_that_hangs() {
  prepare run-that-hangs
  check "hang-run" bench TESSERA_CHECK_SECONDS=20 TESSERA_CHECK_LEAST=4 TESSERA_CHECK_GRACE=3
  ended_with 1
  says '^-- a run is alive behind its submit: killed'
  says '^125m-s2048: not done after [0-9]+ s'
  says '^1b-s2048: left out'
  says '^operations-bench: left out'
  cleaned_up
}

run_that_fails() {
  prepare run-that-fails
  check "fail-run" bench
  ended_with 1
  [ "$(grep -c '^| Model .* status | reason ' "$box/screen")" = 1 ] || wrong "not one header of failures"
  says '^\| custom.* \| 8192 .*\| oom \| out of device memory \|'
  says '^7b-s2048: did not end ok'
  says '^operations-bench: 3 rows'
  cleaned_up
}

told_to_end() {
  prepare told-to-end
  check "deaf:operations:4" correct &
  local checking=$! pid until=$((SECONDS + 20))
  until grep -q '^operations' "$box/calls" || [ "$SECONDS" -gt "$until" ]; do sleep 0.1; done
  sleep 1
  pid=$(pgrep -f -- "scripts/gpu-check.sh correct $box/out" | head -1)
  kill -TERM "${pid:?}"
  wait "$checking"
  ended_with 143
  archived correct.tgz logs/attention.txt '^ok   name-8'
  cleaned_up
}

no_gpu() {
  prepare no-gpu
  check "no-gpu" correct
  ended_with 1
  says 'no GPU to check: the driver has no device'
  [ ! -e "$box/out" ] || wrong "made a folder"
  check "" correct TESSERA_CHECK_GPU=nobodys
  ended_with 2
  says "'nobodys' is not in yamls/gpus.yaml"
  check "" everything
  ended_with 2
  check "" correct TESSERA_CHECK_SECONDS=soon
  ended_with 2
  says "TESSERA_CHECK_SECONDS: 'soon' is no positive number"
}

pytorch_without_gpu() {
  prepare pytorch-without-gpu
  check "" pytorch STUB_NO_GPU=1
  ended_with 1
  says 'PyTorch sees no GPU'
  says '^pytorch: exit code 1'
  left_files './pytorch.tgz ./pytorch.txt'
  cleaned_up
}

cases=(all_well faults_behind_each_other sticky_without_end out_of_time finding_before_time_is_over sanitizer_that_does_not_start
  bench_of_all_models run_that_hangs run_that_fails told_to_end no_gpu pytorch_without_gpu)
pids=()
for name in "${@:-${cases[@]}}"; do
  "$name" >"$all/$name.txt" &
  pids+=($!)
done
wait "${pids[@]}"
cat "$all"/*.txt
if [ -e "$all/wrong" ]; then
  echo "gpu_check_test.sh: $(wc -l <"$all/wrong") things are not as they should be"
  exit 1
fi
echo "gpu_check_test.sh: ${#pids[@]} cases hold"
