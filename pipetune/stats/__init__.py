"""Rates, intervals, noise and drift: the one place where an interval is computed. Pure; for every package above."""
