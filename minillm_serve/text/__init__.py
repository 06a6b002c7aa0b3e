"""Token ids to text."""
