"""A watched job: its ranks, the roles of its processes, and what they wait for. Called by ``watching``."""
