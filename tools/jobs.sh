#!/usr/bin/env bash
# Prints the number of compilers or test programs to run in parallel: MAX_JOBS, or one per core that
# this process may use. `nproc` is not enough, because it follows OMP_NUM_THREADS, which the Makefile
# sets to 1 for the ranks.
set -euo pipefail
echo "${MAX_JOBS:-$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)}"
