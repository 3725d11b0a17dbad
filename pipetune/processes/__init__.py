"""Lifetimes of processes: ends with the parent, deferred signals, what a killed one leaves behind, the user's job."""
