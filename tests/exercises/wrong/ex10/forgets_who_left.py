"""Does not listen when somebody leaves.

Reason: who has left is still counted
"""


class Inside(Inside):  # noqa: F821
    def leave(self, request_id):
        pass
