"""The frozen data types that the rooms pass to each other. Read this first."""
