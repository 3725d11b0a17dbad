"""The run folder: written, read and locked."""
