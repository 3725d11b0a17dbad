"""Does the search find the cheapest sufficient candidate, and does it stay with it?"""
