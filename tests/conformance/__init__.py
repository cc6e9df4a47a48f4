"""PyTorch's own DistributedTest suite, for ringdist next to gloo. See docs/conformance.md."""
