"""What chapter 06 measures and shows: whose blocks are whose, what sharing them saves, and costs.

`world` runs real caches under small crowds, without a model; `tree` draws what they hold, and
`experiment` lets it be turned. `split`, `gains` and `pools` are pictures of their own, and `real`
is what is done with the real model.
"""
