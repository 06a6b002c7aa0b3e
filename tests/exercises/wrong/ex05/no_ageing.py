"""Ranks by priority alone.

Reason: nobody ages
"""


class Ageing:
    def __init__(self, ageing=100):
        self.ageing = ageing

    def rank(self, request, number):
        return request.priority
