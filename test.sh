#!/usr/bin/env bash
# Builds and checks everything: packages, build with warnings as errors, all tests, clang-format on all files, clang-tidy
# on changed ones.
#   --all    clang-tidy on all files
#   --asan   the tests once more under the address and undefined-behaviour sanitizers, those of communicators and of
#            how ranks meet under the thread sanitizer too
# With CI set, a test that skips itself fails the run, but for those that say "skipped: no GPU".
set -euo pipefail
cd "$(dirname "$0")"

tidy_all=false
asan=false
for argument in "$@"; do
  case "$argument" in
    --all) tidy_all=true ;;
    --asan) asan=true ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "test.sh: unknown option '$argument'; --all or --asan" >&2; exit 2 ;;
  esac
done

step() { printf '\n== %s (%s)\n' "$*" "$(date -u +%H:%M:%S)"; }

step packages
scripts/install-packages.sh test

mapfile -t sources < <(git ls-files --cached --others --exclude-standard -- '*.h' '*.cpp' '*.cu' | sort)

step "clang-format, ${#sources[@]} files"
clang-format-19 --dry-run --Werror "${sources[@]}"

# show_failed LOG: the last lines of each failed test's output, the summary last.
show_failed() {
  local number
  for number in $(sed -n 's/^\t *\([0-9][0-9]*\) - .*/\1/p' "$1"); do
    printf '\n-- test %s\n' "$number"
    grep "^$number: " "$1" | tail -n 200
  done
  grep -E '^ *[0-9]+/[0-9]+ Test|tests passed|Total Test time|^\t *[0-9]+ - ' "$1"
}

# build_and_test PRESET [COMMAND...]: the tests are started by COMMAND.
build_and_test() {
  local preset=$1
  shift
  step "build ($preset)"
  mkdir -p build
  cmake --preset "$preset" -DTESSERA_WERROR=ON >build/configure.log 2>&1 || { cat build/configure.log >&2; exit 1; }
  cmake --build --preset "$preset"
  step "tests ($preset)"
  "$@" ctest --preset "$preset" --output-log "build/$preset/ctest.log" -V >/dev/null || {
    show_failed "build/$preset/ctest.log" >&2
    exit 1
  }
  grep -E '^ *[0-9]+/[0-9]+ Test|tests passed|Total Test time' "build/$preset/ctest.log"
  grep -E '(^|[^a-z])skipped: ' "build/$preset/ctest.log" >build/skipped.txt || true
  cat build/skipped.txt
  if grep -vq 'skipped: no GPU' build/skipped.txt && [ -n "${CI:-}" ]; then
    echo "test.sh: a test skipped itself, which CI does not allow" >&2
    exit 1
  fi
}

build_and_test release
if $asan; then
  build_and_test asan
  # gcc 12's thread sanitizer does not start where the kernel spreads addresses wider than it knows.
  fixed_addresses=(setarch -R)
  "${fixed_addresses[@]}" true 2>/dev/null || fixed_addresses=()
  build_and_test tsan "${fixed_addresses[@]}"
fi

if $tidy_all; then
  mapfile -t tidied < <(printf '%s\n' "${sources[@]}" | grep -E '\.(cpp|cu)$')
else
  base=$(git merge-base HEAD origin/main 2>/dev/null || git rev-parse HEAD 2>/dev/null || true)
  mapfile -t tidied < <({ git diff --name-only --diff-filter=d "${base:-HEAD}"; git ls-files --others --exclude-standard; } |
    grep -E '\.(cpp|cu)$' | sort -u)
fi
# What is not built here (no CUDA toolkit) cannot be read either.
built=()
for source in "${tidied[@]}"; do
  ! grep -qF "\"file\": \"$PWD/$source\"" build/release/compile_commands.json || built+=("$source")
done
left_out=$((${#tidied[@]} - ${#built[@]}))
tidied=("${built[@]}")
step "clang-tidy, ${#tidied[@]} files$([ "$left_out" = 0 ] || echo ", $left_out not built here")"
# tidy FILE: kernels as the emulator's build has them, as C++.
tidy() {
  case "$1" in
    *.cu) clang-tidy-19 --quiet "$1" -- -x c++ -std=c++20 -I"$PWD" -Wno-unknown-pragmas ;;
    *) clang-tidy-19 -p build/release --quiet "$1" ;;
  esac
}
export -f tidy
if [ ${#tidied[@]} -gt 0 ]; then
  printf '%s\n' "${tidied[@]}" | xargs -P "$(nproc)" -n 1 bash -c 'tidy "$1"' tidy 2>build/tidy.log || {
    grep -v 'warnings generated' build/tidy.log >&2
    exit 1
  }
fi
step "all checks passed"
grep -E 'tests passed' build/*/ctest.log | sed 's/.*ctest.log://'
