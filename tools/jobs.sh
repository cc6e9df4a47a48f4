#!/usr/bin/env bash
# Prints how many compilers or test programs to run at once: MAX_JOBS, else one per core that this
# process may use. `nproc` alone obeys OMP_NUM_THREADS, which the Makefile sets to 1 for the ranks.
set -euo pipefail
echo "${MAX_JOBS:-$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)}"
