"""Packs what a rented GPU machine without a network lacks, in parts that can be carried there."""
