"""Can a measured rate be trusted, and do the stand-ins behave as what they stand for?"""
