"""The kernels, imported as ``minillm_serve.kernels``; their files live in ``kernels/`` at the root.

The folder at the root has no ``__init__.py`` on purpose. Hugging Face publishes a package that is
also called ``kernels``, and transformers imports it: a regular package of that name at the root of
the checkout would hide it. So a checkout is bridged here, and a wheel carries copies of the files
beside this one.
"""

from pathlib import Path

_checkout = Path(__file__).resolve().parents[2] / "kernels"
_is_wheel = (Path(__file__).parent / "canary.py").is_file()
if not _is_wheel and (_checkout / "canary.py").is_file():
    __path__.append(str(_checkout))
