"""Measures the recovery of survivors after a rank is killed, and checks their results."""

import os

# Set before torch is imported, because its math libraries start a thread per core. A process that
# forks must have no threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
