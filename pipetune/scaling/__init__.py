"""Sweeps on clusters: job arrays, and what came of them."""
