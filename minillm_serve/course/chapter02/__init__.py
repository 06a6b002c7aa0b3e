"""What chapter 02 measures and shows: who holds which slots of the KV memory, and what it costs.

`memory` has the allocators, `traffic` the people who use them, `ledger` the experiment, `knob` the
block size, and `indirection` what following a block table takes.
"""
