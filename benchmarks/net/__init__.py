"""Several hosts on one machine: network namespaces behind links of a given rate.

`python -m benchmarks.net --help` shows the command line, docs/bench-net.md how it works.
"""
