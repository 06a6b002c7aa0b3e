"""Lets a newcomer weigh as much as `ageing` steps of priority.

Reason: the priority does not count
"""


class Ageing:
    def __init__(self, ageing=100):
        self.ageing = ageing

    def rank(self, request, number):
        return request.priority + self.ageing * number
