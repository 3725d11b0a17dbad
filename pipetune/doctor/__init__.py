"""The check-up: facts of the machine, and what follows from them."""
