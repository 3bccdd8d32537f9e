#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From nothing to a first table, on this machine and without a GPU: installs what is missing, builds, trains a small
# sweep, collects. A second run trains nothing.
set -euo pipefail
cd "$(dirname "$0")"

scripts/install-packages.sh build
if [ ! -f build/release/build.ninja ]; then
  mkdir -p build
  cmake --preset release >build/configure.log 2>&1 || { cat build/configure.log >&2; exit 1; }
fi
programs=(--target submit collect trainer)
if [ -t 1 ]; then
  cmake --build --preset release "${programs[@]}"
else
  echo "Building"
  cmake --build --preset release "${programs[@]}" >build/build.log 2>&1 || { tail -n 60 build/build.log >&2; exit 1; }
fi

# Everything stays inside this folder.
export TESSERA_STATE_DIR=$PWD/.state
bin=build/release/bin
"$bin/submit" --sweep yamls/sweeps/quickstart.yaml --workspace runs --RUN
"$bin/collect" quickstart -p
echo
echo "The same as files:  $PWD/results/quickstart/results.csv and .md"
echo "One run explained:  $bin/collect show RUN   (with TESSERA_STATE_DIR=$TESSERA_STATE_DIR)"
