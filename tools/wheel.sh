#!/usr/bin/env bash
# Builds a wheel for distribution, which needs no compiler, into dist/. Tries it on two ranks.
#
#   tools/wheel.sh                     with the library for NVIDIA GPUs if nvcc exists
#   RINGDIST_CUDA=OFF tools/wheel.sh   without it
#
# The wheel is for the Python and the minor version of torch in .venv, which is part of its version
# (0.1.0+torch2.13). pip does not select wheels by the installed torch, so users must name the file.
# auditwheel determines the glibc that it needs, at most that of this machine. So build it on the
# oldest system that it should support.
# MAX_JOBS has the meaning that it has in setup.py. The next call reuses build/wheel.
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

# Old folders are removed, because setuptools packs their contents, including modules that no longer
# exist.
rm -rf build/lib.* build/bdist.* "$folder/made" "$site"
RINGDIST_RELEASE=ON RINGDIST_BUILD_DIR=$folder/cmake RINGDIST_WERROR=${RINGDIST_WERROR:-ON} \
  python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps \
  --wheel-dir "$folder/made" .

# Torch and UCX come from other wheels, which pip installs beside this one.
auditwheel repair --wheel-dir dist --exclude 'libtorch*' --exclude 'libc10*' \
  --exclude 'libuc*' --exclude 'libssl*' --exclude 'libcrypto*' "$folder"/made/*.whl
wheel=$(find dist -name '*.whl' -newer "$folder/made" -print -quit)

# Installed like by pip, beside torch and UCX, and outside of the checkout, because its sources would be
# found first.
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
