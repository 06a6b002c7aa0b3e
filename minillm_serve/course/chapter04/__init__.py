"""What chapter 04 measures and shows: who sits where in the batch, step by step, and what it costs.

`schedules` runs the three schedulers over a stopwatch and `real` on the real model; `theory` says
how many steps they take; `table` prints the batch, `gantt` and `idle` are the experiments, and
`sweeps` the plots over many runs.
"""
