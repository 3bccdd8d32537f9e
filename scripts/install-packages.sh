#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that Tessera needs and that are not there. Usage: install-packages.sh build|test
# build: to build and use it. test: also the checkers of test.sh.
set -euo pipefail

build=(g++ cmake ninja-build git libcli11-dev libyaml-cpp-dev nlohmann-json3-dev libfmt-dev doctest-dev libsodium-dev
  libopenblas-openmp-dev libgloo-dev ca-certificates)
# clang builds for the sanitizers, three times as fast as gcc. ccache: a second clone on this machine takes minutes.
check=(ccache clang-19 clang-format-19 clang-tidy-19 libclang-rt-19-dev libomp-19-dev binutils procps python3
  groff-base zsh fish)
# The tests of Slurm start a cluster of their own, which only root can.
if [ "$(id -u)" = 0 ]; then
  check+=(slurm-wlm slurm-wlm-basic-plugins slurmdbd slurm-wlm-mysql-plugin munge mariadb-server)
fi

case "${1:-build}" in
  build) wanted=("${build[@]}") ;;
  test) wanted=("${build[@]}" "${check[@]}") ;;
  *) echo "install-packages.sh: '$1': build or test" >&2; exit 2 ;;
esac

missing=()
for package in "${wanted[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install-packages.sh: as root, run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "Installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${as_root[@]}" apt-get update && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  cat "$log" >&2
  echo "install-packages.sh: apt-get could not install ${missing[*]}" >&2
  exit 1
fi
