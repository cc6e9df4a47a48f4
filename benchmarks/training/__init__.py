"""How long training stands still when a rank is killed, and when one comes."""
