"""Lets whoever is refused knock again at once.

Reason: a storm, made by the door itself
"""


class MyAdmission(MyAdmission):  # noqa: F821
    def admit(self, request, load):
        verdict = super().admit(request, load)
        return Refuse(retry_after=0.0) if isinstance(verdict, Refuse) else verdict  # noqa: F821
