"""Weights and architectures: what a model is, where its files are, and how they become tensors.

The way in is ``resolve_model(name) -> directory``, then ``load_config``, ``load_tokenizer`` and
``load_model`` of that directory. Nothing in this package knows of caches, batches or schedulers.
"""
