"""Tests of what people read: README, CONTRIBUTING and the manual."""
