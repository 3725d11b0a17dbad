"""Finished runs: a folder is read, its contents become pandas frames, two runs are compared."""
