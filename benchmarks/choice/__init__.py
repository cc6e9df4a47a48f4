"""Whether the planner's choice is the fastest: against every algorithm that could be forced."""
