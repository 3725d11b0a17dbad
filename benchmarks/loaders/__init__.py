"""Are the recommended loaders fast, and do models train as well with them?"""
