"""Measures pauses of training when a rank is killed and when one joins."""
