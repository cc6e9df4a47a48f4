#!/usr/bin/env bash
# Prints the path of nvcc: of PATH, of CUDA_HOME, or where CUDA is by default. Status 1: there is none.
set -euo pipefail
for nvcc in nvcc "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" /usr/local/cuda/bin/nvcc; do
  if command -v "$nvcc"; then exit 0; fi
done
exit 1
