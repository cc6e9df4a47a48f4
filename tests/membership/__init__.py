"""What `make membership-sim` must notice: csrc/consensus with a bug in it, run in its world."""
