"""What ``--dataset`` accepts, and the index of images that the parent makes once and every child reads."""
