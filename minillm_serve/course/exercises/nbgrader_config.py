"""For nbgrader's own commands, given in the root of the repository.

    nbgrader autograde ex01_kv_budget \\
        --JupyterApp.config_file=minillm_serve/course/exercises/nbgrader_config
"""

from pathlib import Path

from minillm_serve.course.exercises.nbgrader_settings import settings

c = get_config()  # type: ignore[name-defined]  # noqa: F821 - nbgrader runs this file
c.merge(settings(Path.cwd()))
