"""Simulates several hosts on one machine by network namespaces with links of a given rate.

`python -m benchmarks.net --help` shows the command line, docs/bench-net.md how it works.
"""
