#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds and checks: packages, formatting, the release build with all its tests, clang-tidy on changed files.
#   NAME...  these tests alone, in the release build ("./test.sh ledger slurm"; "ctest -N --preset release" lists them)
#   --all    what CI runs: unit tests under the address and undefined-behaviour sanitizers, those of ranks under the
#            thread sanitizer, in the release build those of real programs and of what -O2 may change; clang-tidy on all
#            files
# With CI set, a test that skips itself fails the run, but for those that say "skipped: no GPU".
set -euo pipefail
cd "$(dirname "$0")"

all=false
names=()
for argument in "$@"; do
  case "$argument" in
    --all) all=true ;;
    -h | --help) sed -n '/^# Builds/,/^set/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "test.sh: unknown option '$argument'; --all, or names of tests" >&2; exit 2 ;;
    *) names+=("$argument") ;;
  esac
done

# Minutes of each step.
steps=()
step=""
begin_step() {
  end_step
  step=$1
  step_began=$SECONDS
  printf '\n== %s (%s)\n' "$1" "$(date -u +%H:%M:%S)"
}
end_step() {
  [ -z "$step" ] || steps+=("$(printf '%6.1f  %s' "$(minutes $((SECONDS - step_began)))" "$step")")
  step=""
}
minutes() { awk -v s="$1" 'BEGIN { printf "%.1f", s / 60 }'; }
print_steps() {
  end_step
  printf '\nminutes  step\n'
  printf '%s\n' "${steps[@]}"
  printf '%6.1f  in all\n' "$(minutes $SECONDS)"
}

# show_failed LOG: the last lines of each failed test's output, the summary last.
show_failed() {
  local number
  for number in $(sed -n 's/^\t *\([0-9][0-9]*\) - .*/\1/p' "$1"); do
    printf '\n-- test %s\n' "$number"
    grep "^$number: " "$1" | tail -n 200
  done
  grep -E '^ *[0-9]+/[0-9]+ Test|tests passed|Total Test time|^\t *[0-9]+ - ' "$1"
}

# configure PRESET
configure() {
  mkdir -p build
  cmake --preset "$1" >"build/configure-$1.log" 2>&1 || { cat "build/configure-$1.log" >&2; exit 1; }
}

# run_tests PRESET [CTEST ARGUMENTS...]: prints a line a test.
run_tests() {
  local preset=$1 log=build/$1/ctest.log launcher=()
  shift
  # gcc 12's thread sanitizer does not start where the kernel spreads addresses wider than it knows.
  if [ "$preset" = tsan ] && setarch -R true 2>/dev/null; then launcher=(setarch -R); fi
  "${launcher[@]}" ctest --preset "$preset" --output-log "$log" -V "$@" >/dev/null || { show_failed "$log" >&2; return 1; }
  grep -E '^ *[0-9]+/[0-9]+ Test|tests passed|Total Test time' "$log"
  grep -E '(^|[^a-z])skipped: ' "$log" || true
  if [ -n "${CI:-}" ] && grep -E '(^|[^a-z])skipped: ' "$log" | grep -vq 'skipped: no GPU'; then
    echo "test.sh: a test skipped itself, which CI does not allow" >&2
    return 1
  fi
}

begin_step packages
scripts/install-packages.sh test

if [ ${#names[@]} -gt 0 ]; then
  begin_step "build ${names[*]}"
  configure release
  cmake --build --preset release --target "${names[@]/#/suite_}"
  begin_step "tests ${names[*]}"
  ctest --preset release --verbose -R "^($(IFS='|'; echo "${names[*]}"))\$"
  exit
fi

mapfile -t sources < <(git ls-files --cached --others --exclude-standard -- '*.h' '*.cpp' '*.cu' | sort)
begin_step "clang-format, ${#sources[@]} files"
clang-format-19 --dry-run --Werror "${sources[@]}"

begin_step "license lines, layers, docs"
scripts/license-headers.py
scripts/check-layers.py
scripts/check-docs.py

begin_step "clang-tidy on changed files"
scripts/tidy.py changed

# build PRESET [TARGET]
build() {
  begin_step "build ($1)"
  configure "$1"
  cmake --build --preset "$1" ${2:+--target "$2"}
}
# test_in PRESET [CTEST ARGUMENTS...]
test_in() {
  begin_step "tests ($1)"
  run_tests "$@"
}
if $all; then
  # What neither -O2 nor a real program can change is built and run once, under the sanitizers.
  # Tests never run beside a build: both slow down by what the other uses, and tests may miss their time limits.
  build release release_for_ci
  test_in release --label-regex '^ci-(release|both)$'
  build asan
  test_in asan --label-regex '^ci-(sanitizers|both)$'
  build tsan
  test_in tsan
  begin_step "clang-tidy on all files"
  scripts/tidy.py all
else
  build release
  test_in release
fi
print_steps
grep -hE 'tests passed' build/*/ctest.log
echo "All checks passed."
