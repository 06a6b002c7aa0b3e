"""Chapter 03: the decode kernel in five stages, who reads what, what a compiler makes of it."""
