"""A watched job: its ranks, their roles, what they wait for."""
