"""The Python tests under every setting that must not change their results."""
