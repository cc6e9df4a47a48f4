"""Ranks of a training are killed, stopped, sent away and replaced at random."""
