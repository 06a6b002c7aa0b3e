"""One scale a head, so that a token's codes hang on its batch.

Reason: hangs on who else is in its batch
"""


def scales_of(x):
    return (x.float().abs().amax(-1).amax(0) / 127).expand(x.shape[:2]).clone()
