"""Refuses documents, though nobody else is there.

Reason: a seat is free: nobody waits for it
"""


class MyAdmission(MyAdmission):  # noqa: F821
    def admit(self, request, load):
        if len(request.prompt_token_ids) > 1000:
            return Refuse(retry_after=5.0)  # noqa: F821
        return super().admit(request, load)
