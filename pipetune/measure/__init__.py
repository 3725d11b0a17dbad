"""The parent's side of a measurement: gives each candidate a child of its own, and summarises what it sends."""
