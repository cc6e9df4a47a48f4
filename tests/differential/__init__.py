"""Random sequences of operations, compared with exact arithmetic. See docs/testing.md."""
