"""A loader's settings, the space of candidates, and which of them fit this machine. Pure."""
