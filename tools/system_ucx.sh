#!/usr/bin/env bash
# Builds with the system's UCX instead of the wheel's, and runs the transport suite over it. Arguments
# go to GoogleTest. It needs UCX's development files: apt-get install libucx-dev.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build/system-ucx
export PATH="$PWD/.venv/bin:$PATH"
export RINGDIST_UCX=system

if [ ! -f "$build/build.ninja" ]; then
  cmake -S . -B "$build" -G Ninja -DPython_EXECUTABLE="$PWD/.venv/bin/python" -DRINGDIST_WERROR=ON
fi
cmake --build "$build" --target conformance_test --parallel "$(tools/jobs.sh)"
"$build/out/conformance_test" --gtest_filter='*Transport*:*Ucx*' "$@"
