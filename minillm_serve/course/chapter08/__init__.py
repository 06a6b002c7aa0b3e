"""Chapter 08: numbers in fewer bits.

- `lattice`: one row of keys, and what each kind of code makes of it.
- `record`: the committed measurements, and their pictures.
- `tradeoff`: the experiment, bits against quality against users.
- `shared`: a block that is copied, with its scales and without.
"""
