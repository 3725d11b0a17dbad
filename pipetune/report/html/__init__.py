"""A run as a file to pass on: an HTML page, Markdown, CSV, a trace."""
