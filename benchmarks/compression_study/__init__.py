"""What compression does to training: simulated ranks in one process, real schedules and codecs.

`python -m benchmarks.compression_study --help` shows the command line. The results are in
benchmarks/results/compression-study.md.
"""
