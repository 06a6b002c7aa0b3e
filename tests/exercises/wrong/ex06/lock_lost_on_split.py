"""The upper part of a run that is cut has no locks (B16).

Reason: Whoever locked a run that is cut in two needs both parts of it
"""


class Tree(Tree):  # noqa: F821
    def split(self, node, count):
        upper = super().split(node, count)
        upper.locks = 0
        return upper
