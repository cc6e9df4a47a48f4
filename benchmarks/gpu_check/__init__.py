"""Checks the kernels on an NVIDIA GPU against the codecs of CPUs, and measures their speed."""
