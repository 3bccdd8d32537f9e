#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Plans the 216 configurations of the published MPT tables: ./sweep.sh -c CLUSTER [--RUN]
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
submit="$here/build/release/bin/submit"
if [[ ! -x "$submit" ]]; then
  (cd "$here" && cmake --preset release && cmake --build --preset release --target submit) >&2
fi
exec "$submit" --sweep "$here/yamls/sweeps/mpt-published.yaml" "$@"
