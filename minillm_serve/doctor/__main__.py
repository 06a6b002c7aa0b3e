"""``python -m minillm_serve.doctor``, for a checkout that is not installed."""

from . import main

raise SystemExit(main())
