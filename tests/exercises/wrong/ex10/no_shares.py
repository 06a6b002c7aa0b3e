"""First come, first served, whoever sends how much.

Reason: this tenant holds more than an equal share
"""


class MyAdmission(MyAdmission):  # noqa: F821
    def admit(self, request, load):
        wait = waits(load)  # noqa: F821
        if load.has_seats:
            return Accept()  # noqa: F821
        if wait > PATIENCE:  # noqa: F821
            return Refuse(retry_after=max(1.0, wait))  # noqa: F821
        return Queue(at_most=PATIENCE)  # noqa: F821
