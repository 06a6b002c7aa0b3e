"""Refuses by the number of those who wait alone.

Reason: Few wait, but what they bring is long
"""


class MyAdmission(MyAdmission):  # noqa: F821
    def admit(self, request, load):
        if load.has_seats:
            return Accept()  # noqa: F821
        if load.num_waiting >= 24:
            return Refuse(retry_after=2.0)  # noqa: F821
        return Queue(at_most=PATIENCE)  # noqa: F821
