"""Lifetimes: parent death, signals, files in shared memory, the user's job."""
