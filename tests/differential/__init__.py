"""Random sequences of operations, compared with exact arithmetic.

docs/how-to/test-a-change.md shows how to run them.
"""
