"""``python -m torch_ringdist run``: starts the ranks of this host and restarts those that die."""
