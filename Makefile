# Every target creates .venv first; this requires Python 3.11, pip and network access.
PYTHON ?= python3
RUNS ?= runs
UV := $(or $(shell command -v uv),build/uv/bin/uv)
READY := .venv/.ready
# One more than the number of cores, because many tests wait for a server or a sandbox.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST = .venv/bin/python -m pytest -n $(WORKERS) --maxprocesses 5 --dist worksteal
# The lock pins pyright, so do not check for a newer version.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# Otherwise every test that starts a Python process would recompile its imports to bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-all check bench docs lock clean

setup: $(READY)  ## create .venv with all extras and the development tools, as locked

demo: $(READY)  ## train an agent to find an odour source; pictures and a report in runs/demo/
	.venv/bin/python -m tropism demo --out $(RUNS)/demo

test: $(READY)  ## run the fast tests, at most six minutes on two cores
	$(PYTEST) $(ARGS)

test-all: $(READY)  ## run every test, the long ones in full
	$(PYTEST) -m "" $(ARGS)

check: $(READY)  ## check formatting, lint, types, import layers and sizes
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/pyright
	.venv/bin/lint-imports
	.venv/bin/python .ci/lines.py

bench: $(READY)  ## run the quick comparisons with other libraries
	.venv/bin/python -m benchmarks

docs: $(READY)  ## generate the tables and pictures in docs/
	.venv/bin/python -m benchmarks.report
	.venv/bin/python docs/routes.py
	.venv/bin/python docs/plumes.py
	.venv/bin/python docs/science.py
	.venv/bin/python docs/page.py

lock: $(UV)  ## compile requirements.lock: names, versions and hashes only
	$(UV) pip compile pyproject.toml --extra all --extra ray --group dev --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --no-emit-index-url --no-emit-find-links --quiet --output-file requirements.lock

clean:  ## remove everything that can be regenerated
	rm -rf .venv build dist runs .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(READY): requirements.lock pyproject.toml | $(UV)
	test -x .venv/bin/python || $(UV) venv --quiet --python $(PYTHON) .venv
	$(UV) pip sync --quiet --python .venv/bin/python --require-hashes requirements.lock
	$(UV) pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .
	touch $@

build/uv/bin/uv:
	$(PYTHON) -m pip install --quiet --target build/uv uv
