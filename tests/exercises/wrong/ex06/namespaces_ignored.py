"""Finds and publishes everything in one tree (B19).

Reason: is of another namespace: nothing may be found across
"""


class Index(Index):  # noqa: F821
    def find(self, token_ids, namespace):
        return super().find(token_ids, None)
