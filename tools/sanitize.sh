#!/usr/bin/env bash
# Builds the C++ tests under a sanitizer and runs them: tools/sanitize.sh address|thread
#
# "address" is AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer in one. More arguments
# go to ctest (-R <name>).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

sanitizer=${1:?address or thread}
shift
build=build/$sanitizer
export PATH="$PWD/.venv/bin:$PATH"

if [ ! -f "$build/build.ninja" ] || grep -q '^GTest_DIR:.*NOTFOUND' "$build/CMakeCache.txt"; then
  cmake -S . -B "$build" -G Ninja -DPython_EXECUTABLE="$PWD/.venv/bin/python" \
    -DSANITIZE="$sanitizer" -DRINGDIST_WERROR=ON -DRINGDIST_UCX="${RINGDIST_UCX:-wheel}"
fi
cmake --build "$build" --target cpp_tests --parallel "${MAX_JOBS:-$(nproc)}"

# With much address randomization an older ThreadSanitizer finds its shadow memory taken.
run=()
if [ "$sanitizer" = thread ] && setarch --addr-no-randomize true 2>/dev/null; then
  run=(setarch --addr-no-randomize)
fi
"${run[@]}" ctest --test-dir "$build" --output-on-failure --no-tests=error \
  --parallel "$(nproc)" --progress "$@"
