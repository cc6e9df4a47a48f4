"""Simulates several hosts on one machine by network namespaces with links of a given rate.

`python -m benchmarks.net --help` shows the command line, docs/how-to/measure.md how it works.
"""
