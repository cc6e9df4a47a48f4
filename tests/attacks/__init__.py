"""`make attacks`: what a stranger on the network can do to a job, measured."""
