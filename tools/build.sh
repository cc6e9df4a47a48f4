#!/usr/bin/env bash
# Builds into build/release, and makes .venv use the result.
#
#   tools/build.sh python       the package: its binaries, and the editable install
#   tools/build.sh cpp_tests    the C++ tests
#   tools/build.sh membership_sim    the program of make membership-sim
#   tools/build.sh cuda         the package, and its library for NVIDIA GPUs; needs nvcc
#
# The editable install of setup.py uses the same folder, so neither repeats work of the other.
# RINGDIST_UCX, RINGDIST_CUDA, RINGDIST_WERROR and MAX_JOBS have the meaning that they have in setup.py,
# but warnings are errors by default. Once CUDA was built in a folder, later builds there include it
# until RINGDIST_CUDA=OFF.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=${1:?python, cpp_tests, membership_sim or cuda}
build=build/release
export PATH="$PWD/.venv/bin:$PATH"
export TORCH_DEVICE_BACKEND_AUTOLOAD=0
export RINGDIST_WERROR=${RINGDIST_WERROR:-ON}

options=("-DPython_EXECUTABLE=$PWD/.venv/bin/python" -DRINGDIST_DEVELOP=ON
  "-DRINGDIST_WERROR=$RINGDIST_WERROR" "-DRINGDIST_UCX=${RINGDIST_UCX:-wheel}")

# CMake runs once, after changes of options, and after GoogleTest was installed. Ninja reruns it for
# other changes.
if [ ! -f $build/build.ninja ] || [ "$(cat $build/options 2>/dev/null)" != "${options[*]}" ] ||
  { [[ $target == cpp_tests || $target == membership_sim ]] &&
    grep -q '^GTest_DIR:.*NOTFOUND' $build/CMakeCache.txt; }; then
  # A build folder cannot be reused after a move, or with another generator.
  if [ -f $build/CMakeCache.txt ] &&
    ! { grep -qFx "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" $build/CMakeCache.txt &&
      grep -qFx 'CMAKE_GENERATOR:INTERNAL=Ninja' $build/CMakeCache.txt; }; then
    rm -rf $build
  fi
  cmake -S . -B $build -G Ninja "${options[@]}"
  printf '%s\n' "${options[*]}" >$build/options
fi
cuda=${RINGDIST_CUDA:-}
if [ "$target" = cuda ]; then
  cuda=ON
  target=python
fi
if [ -n "$cuda" ] && ! grep -qx "RINGDIST_CUDA:BOOL=$cuda" $build/CMakeCache.txt; then
  RINGDIST_CUDA=$cuda cmake $build
  rm -f torch_ringdist/libringdist_cuda.so $build/out/libringdist_cuda.so  # from an earlier build
fi
cmake --build $build --target "$target" --parallel "$(tools/jobs.sh)"

if [ "$target" = python ]; then
  cmake --install $build --component python --prefix torch_ringdist >/dev/null
  wanted="$PWD $(cat setup.py pyproject.toml | sha256sum)"
  if [ "$(cat .venv/installed 2>/dev/null)" != "$wanted" ]; then
    .venv/bin/python -m pip install --quiet --disable-pip-version-check \
      --no-build-isolation --no-deps -e .
    printf '%s\n' "$wanted" >.venv/installed
  fi
fi
