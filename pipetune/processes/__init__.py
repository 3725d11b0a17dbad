"""Lifetimes of processes: ends with the parent, deferred signals, leftover shared memory, the user's job."""
