"""Plans as if nobody brought a prompt.

Reason: at once a token takes too long for
"""

from minillm_serve.sim.cost import Work


def plan(cost, traffic, slo, gap):
    def decode(batch):
        return cost.seconds(Work.decode(batch, round(traffic.context)))

    batch = largest_batch(decode, 0.95 * slo.tpot, 2000)  # noqa: F821
    if batch == 0:
        raise ValueError("tpot is too short")
    more = largest_batch(  # noqa: F821
        lambda more: full_step(cost, traffic, batch, batch + more),  # noqa: F821
        0.95 * gap,
        4096 - batch,
    )
    if more == 0:
        return batch, batch + 300
    return batch, batch + more
