"""Measures effects of compression on training, with simulated ranks in one process.

Schedules and codecs are the real ones. `python -m benchmarks.compression_study --help` shows the
command line, benchmarks/results/compression-study.md the results.
"""
