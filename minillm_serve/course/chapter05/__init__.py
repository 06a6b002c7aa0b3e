"""Chapter 05's longer parts: a long prompt among people who type, counters, queues, experiments.

Imported by name (`from minillm_serve.course.chapter05 import stall`), so that the parts that only
run and count need no widgets.
"""
