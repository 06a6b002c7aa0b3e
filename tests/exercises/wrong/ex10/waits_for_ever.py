"""Has everybody wait who is not refused, however long it takes.

Reason: whoever has not begun by then should not be served before somebody who still can be in time
"""


class MyAdmission(MyAdmission):  # noqa: F821
    def admit(self, request, load):
        verdict = super().admit(request, load)
        return Queue(at_most=3600.0) if isinstance(verdict, Queue) else verdict  # noqa: F821
