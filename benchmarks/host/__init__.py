"""Collectives inside a host: ours, gloo, OpenMPI, torch's fake backend, and what memory allows."""
