"""Graded exercises: what learners call, and what authors of exercises build with.

Learners: `check`, `hint`. Authors: `exercise.Exercise`, and a module `exNN_name.py` here beside a
notebook in `solutions/`. Graders: `minillm-serve exercises grade`, or nbgrader with the settings of
`nbgrader_config.py`.
"""

from minillm_serve.course.exercises.notebook import check, check_hidden, hint

__all__ = ["check", "check_hidden", "hint"]
