"""Rates, intervals, noise and drift. Pure functions."""
