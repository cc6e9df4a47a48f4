"""The kernels for NVIDIA GPUs, on one: the same bytes as on CPUs, and how fast."""
