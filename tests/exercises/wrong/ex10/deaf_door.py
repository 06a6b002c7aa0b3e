"""Keeps books and is not told who has left.

Reason: and that is still in time
"""


class MyAdmission(MyAdmission):  # noqa: F821
    def leave(self, request_id):
        pass
