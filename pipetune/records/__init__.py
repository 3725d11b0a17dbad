"""The frozen data types that the packages pass to each other. Read this first."""
