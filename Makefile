# The ways into this project. `make` alone prints them.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help lab serve test test-full check notebooks clean setup model browser FORCE

VENV := .venv
PY := $(VENV)/bin/python
EXTRAS := course,server,dev

# The first Python that is new enough; `make lab PYTHON=/path/to/python3` takes another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

# `make lab TORCH=2.11.0` takes another torch than the pinned one (say, for an older NVIDIA driver).
# The choice is remembered in the environment; `make lab TORCH=` goes back to the pinned one.
TORCH ?= $(shell cat $(VENV)/.torch 2>/dev/null)

# The environment is complete when it holds the mark of exactly these inputs. The folder is one of
# them, because a moved checkout leaves its environment pointing at the old place.
KEY := $(shell { cat pyproject.toml constraints.txt; pwd; echo "$(TORCH)"; } | cksum | cut -d' ' -f1)
READY := $(VENV)/.ready-$(KEY)
HEALTHY := $(shell $(PY) -c '' 2>/dev/null && echo yes)

# Tests run in two processes, which share the cores between them: more threads than cores only fight.
WORKERS ?= 2
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
THREADS := $(shell t=$$(( $(CORES) / $(WORKERS) )); echo $$(( t > 0 ? t : 1 )))
PYTEST := OMP_NUM_THREADS=$(THREADS) $(PY) -m pytest -n $(WORKERS) --dist loadfile
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout 120 \
	--nbval-sanitize-with tests/sanitize.cfg
NOTEBOOKS := $(wildcard notebooks solutions)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
export PYTHONNOUSERSITE := 1

help: ## List these commands
	@echo "minillm-serve: make COMMAND"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

lab: setup model ## Set everything up, open the course in JupyterLab (ARGS="..." go to it)
	@exec $(PY) -m minillm_serve.course.lab $(ARGS)

serve: setup model ## Set everything up, serve the model over HTTP (ARGS="..." go to it)
	@exec $(PY) -m minillm_serve.cli serve $(ARGS)

test: setup model browser ## Set everything up, run every test but the long grids
	$(PYTEST) -m "not slow" $(NBVAL) tests $(NOTEBOOKS)

test-full: setup model browser ## Run every test, the long grids included
	$(PYTEST) $(NBVAL) tests $(NOTEBOOKS)

check: setup ## Lint, types and unit tests: what to run before a commit
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(if $(NOTEBOOKS),$(PY) -m minillm_serve.course.notebooks --check --no-run $(NOTEBOOKS))
	$(PYTEST) -m "not slow and not model and not browser" tests

notebooks: setup model ## Execute every notebook again and store its outputs
	$(PY) -m minillm_serve.course.notebooks $(NOTEBOOKS)

clean: ## Remove caches and build outputs (the environment and the model stay)
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name .venv -prune -o -type d \( -name __pycache__ -o -name .ipynb_checkpoints \) \
		-exec rm -rf {} +

# ---- What the commands above stand on ------------------------------------------------------------

setup: $(READY)
	@:

# pip can take a half-installed package for a whole one. So an environment that was left unfinished is
# thrown away, never mended; pip's own cache makes the next attempt cheap.
$(READY): $(if $(HEALTHY),,FORCE)
	@if [ -z "$(PYTHON)" ]; then \
		echo "error: Python 3.11 or newer is needed and none was found. Install one, or name it:" \
			"make lab PYTHON=/path/to/python3" >&2; exit 1; fi
	@if ! "$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null; then \
		echo "error: $(PYTHON) cannot make virtual environments. On Debian and Ubuntu:" \
			"sudo apt-get install python3-venv" >&2; exit 1; fi
	@if [ -z "$(HEALTHY)" ] || [ -e $(VENV)/.unfinished ]; then rm -rf $(VENV); fi
	@mkdir -p $(VENV) && touch $(VENV)/.unfinished && rm -f $(VENV)/.ready-*
	@[ -x $(PY) ] || { echo "Making $(VENV) with $$("$(PYTHON)" --version) ..."; \
		"$(PYTHON)" -m venv $(VENV); }
	@echo "Installing what the engine and the course need (minutes the first time) ..."
	@if [ -n "$(TORCH)" ]; then \
		sed -e '/^torch==/d' -e '/^triton==/d' constraints.txt > $(VENV)/constraints.txt; \
		echo "torch==$(TORCH)" >> $(VENV)/constraints.txt; \
	else cp constraints.txt $(VENV)/constraints.txt; fi
	$(PY) -m pip install -c $(VENV)/constraints.txt -e '.[$(EXTRAS)]'
	@# It checks one rare kind of address for jsonschema, and costs seconds at every Jupyter start.
	$(PY) -m pip uninstall -q -y rfc3987-syntax
	@echo "$(TORCH)" > $(VENV)/.torch
	@rm $(VENV)/.unfinished && touch $@

model: setup
	@$(PY) -m minillm_serve.cli models fetch smollm2-135m

# Outside CI a machine without a browser may still run all the other tests.
browser: setup
	@$(PY) -m minillm_serve.course.browser --install || { [ -z "$$CI" ] && \
		echo "WARNING: no browser: the browser tests will be SKIPPED (see the lines above)" >&2; }

FORCE:
