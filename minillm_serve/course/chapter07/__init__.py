"""What chapter 07 measures and shows: guesses, what became of them, and what they cost.

`watch` asks drafters at every token of real answers, `replay` turns that into the steps that an
engine takes, and `experiment` lets one step through them. `rule` is the acceptance rule on a small
scale; `costs` times steps, `pays` says where drafts pay, and `real` is what else is done with the
real model.
"""
