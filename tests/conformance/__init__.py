"""PyTorch's own DistributedTest suite, for ringdist next to gloo.

See docs/reference/conformance.md.
"""
