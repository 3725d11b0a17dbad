"""The parent's side of a measurement: starts a fresh child for each candidate, and summarises what it sends."""
