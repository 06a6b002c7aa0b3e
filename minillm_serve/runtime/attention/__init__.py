"""Attention over a paged KV cache: one protocol, several backends."""
