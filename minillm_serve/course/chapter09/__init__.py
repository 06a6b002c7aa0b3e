"""What chapter 09 computes, measures and shows: one knob, and what turns on it.

`server` is the formula of a step; `knob` and `symbols` are the experiments on it, `pictures` the
still ones. `real` times the real model over it, `users` solves for promises and checks them in the
simulator, and `levers` tries what else there is to turn, on one trace.
"""
