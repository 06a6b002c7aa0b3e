"""Lets everybody in.

Reason: it refuses nobody: the line grows until everybody in it is late
"""


class MyAdmission(MyAdmission):  # noqa: F821
    def admit(self, request, load):
        return Accept()  # noqa: F821
