"""PyTorch's own DistributedTest suite, for ringdist beside gloo: docs/conformance.md."""
