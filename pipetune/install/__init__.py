"""Libraries that pip cannot install beside the others: found, or built in a folder of their own."""
