"""READ FIRST: the frozen data types that travel between the rooms."""
