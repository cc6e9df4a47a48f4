"""Random sequences of operations, compared with exact arithmetic.

See docs/how-to/test-a-change.md.
"""
