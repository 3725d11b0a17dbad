"""The stages of a lease: which there are, how each is run within its cap, and what is kept of it."""
