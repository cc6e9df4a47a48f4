"""Bugs that `make membership-sim` must detect in csrc/membership/paxos."""
