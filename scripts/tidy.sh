#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs clang-tidy. Usage: tidy.sh all|changed
# all: every source, most of them in batches, as its checks read each header once a batch (cmake --preset tidy). The
#      static analyzer follows batches as it does files; unused using-declarations are seen in changed files alone.
# changed: the sources that differ from origin/main, each alone (cmake --preset debug).
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t sources < <(git ls-files --cached --others --exclude-standard -- '*.cpp' '*.cu')
case "${1:-}" in
  all) preset=tidy ;;
  changed)
    preset=debug
    base=$(git merge-base HEAD origin/main 2>/dev/null || git rev-parse HEAD)
    mapfile -t sources < <({ git diff --name-only --diff-filter=d "$base"; git ls-files --others --exclude-standard; } |
      grep -E '\.(cpp|cu)$' | sort -u)
    ;;
  *) echo "tidy.sh: '${1:-}': all or changed" >&2; exit 2 ;;
esac
[ ${#sources[@]} -gt 0 ] || { echo "no changed sources"; exit 0; }
mkdir -p build
cmake --preset "$preset" >"build/configure-$preset.log" 2>&1 || { cat "build/configure-$preset.log" >&2; exit 1; }
commands=build/$preset/compile_commands.json

# What is not built here (no CUDA toolkit) cannot be read either.
left_out=0
mapfile -t units < <(grep -o '"file": ".*/unity_[^/"]*\.cxx"' "$commands" | cut -d'"' -f4)
batched=$(cat "${units[@]}" /dev/null | sed -n "s|^#include \"$PWD/\(.*\)\"|\1|p")
for source in "${sources[@]}"; do
  if grep -qxF "$source" <<<"$batched"; then
    :
  elif grep -qF "\"file\": \"$PWD/$source\"" "$commands"; then
    units+=("$source")
  else
    left_out=$((left_out + 1))
  fi
done
echo "${#sources[@]} sources in ${#units[@]} units$([ "$left_out" = 0 ] || echo ", $left_out not built here")"
[ ${#units[@]} -gt 0 ] || exit 0

# tidy PRESET UNIT: kernels as the emulator's build has them, as C++. Batches lie outside of tests/, whose own settings
# (tests/.clang-tidy) are for them too.
tidy() {
  local checks=-bugprone-suspicious-include
  case "$2" in
    */build/tidy/tests/*) checks+=",-clang-analyzer-*" ;;
  esac
  case "$2" in
    *.cu) clang-tidy-19 --quiet "$2" -- -x c++ -std=c++20 -I"$PWD" -Wno-unknown-pragmas ;;
    # Names of one file may be those of another in its batch: only the compiler of each alone sees what shadows what.
    */build/tidy/*) clang-tidy-19 -p "build/$1" --quiet --checks="$checks" --extra-arg=-Wno-shadow "$2" ;;
    *) clang-tidy-19 -p "build/$1" --quiet "$2" ;;
  esac
}
export -f tidy
# The longest first, so that none is left at the end.
for unit in "${units[@]}"; do
  echo "$(grep -c '^#include "/' "$unit" || true) $unit"
done | sort -rn | cut -d' ' -f2- |
  xargs -P "$(nproc)" -n 1 bash -c 'tidy "$1" "$2"' tidy "$preset" 2>build/tidy.log || {
  grep -v 'warnings generated' build/tidy.log >&2
  exit 1
}
