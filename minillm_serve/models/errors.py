"""The one exception that this package raises on purpose."""


class ModelError(ValueError):
    """A model that cannot be found, fetched, read or served; the message says the remedy."""
