"""A load generator: it sends requests to a server over HTTP, and notes when what comes back."""
