"""A stored run as something to look at: the folder read, and its contents as pandas frames."""
