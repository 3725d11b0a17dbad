"""Rates, intervals, noise and drift: the one place where an interval is computed. Pure; called by every room above."""
