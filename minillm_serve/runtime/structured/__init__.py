"""Answers of a given shape: what may come next by a grammar, and nothing else. Needs xgrammar.

Only the files that call it import it, where they do.
"""
