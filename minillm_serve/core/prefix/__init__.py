"""Which blocks hold the beginning of a new prompt already: two indexes behind one protocol."""

from minillm_serve.core.prefix.hash import HashPrefixCache
from minillm_serve.core.prefix.namespace import Namespace
from minillm_serve.core.prefix.protocol import MakePrefixCache, PrefixCache
from minillm_serve.core.prefix.radix import RadixPrefixCache

#: By the names that `LLM(prefix_cache=...)` knows them under.
PREFIX_CACHES: dict[str, MakePrefixCache] = {"hash": HashPrefixCache, "radix": RadixPrefixCache}

__all__ = [
    "PREFIX_CACHES",
    "HashPrefixCache",
    "MakePrefixCache",
    "Namespace",
    "PrefixCache",
    "RadixPrefixCache",
]
