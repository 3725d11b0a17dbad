"""Keeps the user's files as they are while a script of his is tuned, and lists what it wrote."""
