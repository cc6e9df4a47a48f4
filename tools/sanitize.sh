#!/usr/bin/env bash
# Builds the C++ tests under a sanitizer and runs them: tools/sanitize.sh address|thread [build]
#
# "build" only builds them.
# "address" is AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer in one, for all tests but
# those of fuzz targets, for which tools/fuzz.sh has a build with the same sanitizers.
# "thread" is ThreadSanitizer, for the tests of code with several threads. Further arguments go to ctest
# (-R engine/ for one program), and GTEST_FILTER in the environment selects cases. RINGDIST_LINES=OFF,
# at the first build of a folder, omits line numbers in reports. SANITIZE_CHANGED is a list of folders of
# csrc/. With it, only their tests and those of a fixed core are built and run: what other processes and
# hosts write to, and with the word "product" in the list each part with threads or memory of its own by
# one sanitizer at least. `make sanitize` does not set it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

sanitizer=${1:?address or thread}
shift
only_build=
if [ "${1:-}" = build ]; then
  only_build=yes
  shift
fi
build=build/$sanitizer
export PATH="$PWD/.venv/bin:$PATH"

if [ ! -f "$build/build.ninja" ] || grep -q '^GTest_DIR:.*NOTFOUND' "$build/CMakeCache.txt"; then
  cmake -S . -B "$build" -G Ninja -DPython_EXECUTABLE="$PWD/.venv/bin/python" \
    -DSANITIZE="$sanitizer" -DRINGDIST_LINES="${RINGDIST_LINES:-ON}" -DRINGDIST_WERROR=ON \
    -DRINGDIST_UCX="${RINGDIST_UCX:-wheel}"
fi
mapfile -t folders < <(ctest --test-dir "$build" --show-only |
  sed -n 's,^ *Test *#[0-9]*: \([a-z]*\)/[0-9]*$,\1,p' | grep -vxF fuzz | sort -u)
core=(os store transport)
if [[ ${SANITIZE_CHANGED:-} == *product* ]]; then core+=(conformance membership rendezvous); fi
# Algorithms, codecs, kernels, the consensus, traces, simulated ranks and explored orders have no
# threads that could race with each other. Compressed ops need one codec of each kind, and PowerSGD
# half of its cases. When threads that used UCX end, the loader frees thread-local memory of UCX's
# libraries, which ThreadSanitizer reports as a race.
if [ "$sanitizer" = thread ]; then
  folders=(control membership engine compress conformance negotiation os rendezvous store transport)
  core=(control transport)
  if [[ ${SANITIZE_CHANGED:-} == *product* ]]; then core+=(engine negotiation); fi
  without=(MembershipWorld CodecConformance CudaCodec LosslessKernels CodedStream RingOverUcx
    ShmLinkOrders Simulated. SimulationAndEngine Traces. OpExecution. 'Sizes/LowRank.*/'{0,2,4}
    'Codecs/Compressed*/'{fp,bf,int2,onebit,randomk,lossless,'*_h_'})
  export GTEST_FILTER=${GTEST_FILTER:-"*-$(printf ':*%s*' "${without[@]}" | cut -c 2-)"}
fi
if [ -n "${SANITIZE_CHANGED+x}" ]; then
  mapfile -t folders < <(printf '%s\n' "${folders[@]}" |
    grep -xF "$(printf '%s\n' "${core[@]}" $SANITIZE_CHANGED)")
fi
targets=("${folders[@]/%/_test}")
if [ "$sanitizer" = thread ]; then targets+=(mutants); fi
chosen=(-R "^($(IFS='|' && echo "${folders[*]}"))/")
cmake --build "$build" --target "${targets[@]}" --parallel "$(tools/jobs.sh)"
if [ -n "$only_build" ]; then exit 0; fi

# With strong address randomization, the shadow memory of an older ThreadSanitizer may be occupied.
run=()
if [ "$sanitizer" = thread ] && setarch --addr-no-randomize true 2>/dev/null; then
  run=(setarch --addr-no-randomize)
fi
# One more than cores, because tests partly wait.
"${run[@]}" ctest --test-dir "$build" --output-on-failure --no-tests=error \
  --parallel "$(($(tools/jobs.sh) + 1))" --progress "${chosen[@]}" "$@"
