"""Training in which ranks are killed, stopped, sent away and replaced at random."""
