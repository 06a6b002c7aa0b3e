"""Takes a high number for a high priority.

Reason: the lower priority number goes first
"""


class Ageing:
    def __init__(self, ageing=100):
        self.ageing = ageing

    def rank(self, request, number):
        return number - self.ageing * request.priority
