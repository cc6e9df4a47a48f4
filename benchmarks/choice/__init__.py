"""Compares the planner's choice with every algorithm that could be forced."""
