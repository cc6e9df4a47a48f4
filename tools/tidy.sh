#!/usr/bin/env bash
# Runs clang-tidy (.clang-tidy) on sources of csrc: tools/tidy.sh [FILE...|all]
#
# Without arguments it checks the files of TIDY_FILES; if that is not set, what differs from the last
# commit, and the files of that commit. "all" takes ten minutes on two cores. The library for NVIDIA
# GPUs is left out, since it needs CUDA's headers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/.venv/bin:$PATH" TORCH_DEVICE_BACKEND_AUTOLOAD=0

case ${1:-} in
  all) mapfile -t files < <(git ls-files 'csrc/*.cc') ;;
  '')
    changed=$(git diff --name-only --diff-filter=d HEAD~1 -- 'csrc/*.cc' 2>/dev/null || true)
    mapfile -t files <<<"${TIDY_FILES-$changed}"
    ;;
  *) files=("$@") ;;
esac
mapfile -t files < <(printf '%s\n' "${files[@]}" | grep -v '^csrc/cuda/\|^$' || true)
[ ${#files[@]} -gt 0 ] || exit 0

# Without precompiled headers and groups of files, which Clang could not use.
build=build/tidy
cmake -S . -B $build -G Ninja -DRINGDIST_PRECOMPILE=OFF \
  -DPython_EXECUTABLE="$PWD/.venv/bin/python" -DRINGDIST_UCX="${RINGDIST_UCX:-wheel}" >/dev/null
printf '%s\0' "${files[@]}" |
  xargs -0 -n 4 -P "$(tools/jobs.sh)" clang-tidy -p $build --quiet 2>/dev/null
