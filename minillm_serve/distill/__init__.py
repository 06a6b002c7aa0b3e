"""The recipe of the trained draft head: the target's own text, its hidden states, a small model.

prompts.py (topics.py)   what is asked, by a seed
text.py                  what the target answers, in shards on disk
states.py                the hidden states that the head learns from
loss.py, training.py     the head, unrolled over its own features; checkpoints
evaluation.py            tokens out per verification step, replayed offline
command.py               `minillm-serve train-drafter`: all of it
"""
