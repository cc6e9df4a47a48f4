"""Compares training with DDP over several hosts, with and without compression.

`python -m benchmarks.ddp --help` shows the command line. The results are in
benchmarks/results/compression-when.md.
"""
