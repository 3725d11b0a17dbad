"""Live displays on a terminal and in a notebook."""
