"""Live displays on a terminal and in a notebook, and plain lines in their place."""
