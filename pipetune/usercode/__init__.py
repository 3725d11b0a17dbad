"""The user's own loader or loop."""
