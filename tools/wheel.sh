#!/usr/bin/env bash
# Builds a wheel that others install without a compiler, into dist/, and tries it on two ranks.
#
#   tools/wheel.sh                     with the library for NVIDIA GPUs where nvcc is
#   RINGDIST_CUDA=OFF tools/wheel.sh   without it
#
# It is for the Python and the minor version of torch in .venv: its version says which
# (0.1.0+torch2.13). pip does not choose by the torch that is installed: name the file.
# auditwheel finds which glibc it needs, this machine's or an older one: build where the oldest that
# is to be served is.
# MAX_JOBS means what it means in setup.py. build/wheel is used again by the next.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export PATH="$PWD/.venv/bin:$PATH"
export TORCH_DEVICE_BACKEND_AUTOLOAD=0
folder=$PWD/build/wheel
site=$folder/site

if [ -z "${RINGDIST_CUDA:-}" ]; then
  RINGDIST_CUDA=$(tools/nvcc.sh >/dev/null && echo ON || echo OFF)
fi
export RINGDIST_CUDA
echo "wheel: the library for NVIDIA GPUs in it: $RINGDIST_CUDA"

# setuptools packs whatever it has left there, modules that were since removed, too.
rm -rf build/lib.* build/bdist.* "$folder/made" "$site"
RINGDIST_RELEASE=ON RINGDIST_BUILD_DIR=$folder/cmake RINGDIST_WERROR=${RINGDIST_WERROR:-ON} \
  python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps \
  --wheel-dir "$folder/made" .

# Torch and UCX are other wheels', which pip installs beside it.
auditwheel repair --wheel-dir dist --exclude 'libtorch*' --exclude 'libc10*' \
  --exclude 'libuc*' "$folder"/made/*.whl
wheel=$(find dist -name '*.whl' -newer "$folder/made" -print -quit)

# As pip would put it, beside torch and UCX, and away from the sources, which would be found first.
python -m pip install --quiet --disable-pip-version-check --no-deps --target "$site" "$wheel"
for other in torch libucx; do
  ln -s "$(python -c "import importlib.util as u; print(u.find_spec('$other').submodule_search_locations[0])")" \
    "$site/$other"
done
smoke=$PWD/tools/smoke.py
cd "$site"
unset TORCH_DEVICE_BACKEND_AUTOLOAD RINGDIST_CUDA
export PYTHONPATH=$site OMP_NUM_THREADS=1
python -c "import torch_ringdist as t; assert t.__file__.startswith('$site'), t.__file__"
python -m torch_ringdist info | sed -n 1,6p
python -m torch.distributed.run --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=localhost:0 "$smoke"
cd - >/dev/null
echo "wheel: $wheel ($(du -h "$wheel" | cut -f 1))"
