"""Several hosts that measure the same candidate at the same time."""
