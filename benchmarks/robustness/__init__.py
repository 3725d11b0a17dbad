"""What is left when a run is ended by force, and whether it can be resumed."""
