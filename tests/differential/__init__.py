"""Random sequences of operations, against exact arithmetic. docs/testing.md"""
