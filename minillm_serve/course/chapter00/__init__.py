"""Chapter 00's longer parts: its two servers, watched token by token, and its two experiments.

Imported by name (`from minillm_serve.course.chapter00 import crowd`), so that the servers need no
widgets.
"""
