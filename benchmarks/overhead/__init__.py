"""What pipetune itself costs: time to start, to list, to draw, and the cost of watching."""
