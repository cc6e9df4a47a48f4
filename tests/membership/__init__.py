"""What `make membership-sim` must notice: csrc/membership/paxos with a bug, in its world."""
