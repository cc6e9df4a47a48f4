#!/usr/bin/env bash
# Prints the path of nvcc from PATH, CUDA_HOME, or the default place of CUDA. Exits with 1 if there is
# none.
set -euo pipefail
for nvcc in nvcc "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" /usr/local/cuda/bin/nvcc; do
  if command -v "$nvcc"; then exit 0; fi
done
exit 1
