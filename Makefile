# Every target works in a fresh clone with Python 3.11+ and make. Everything is installed in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Keep compiled bytecode; otherwise every test process would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install browser pgbouncer demo test test-fast check format chaos soak audit conformance bench clean

install: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "aaiclick needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo 'Installing into $(VENV); this takes about two minutes and includes two database servers.'
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $(STAMP)

# Uses its own AAICLICK_HOME, so that no existing data is touched.
demo: install
	@rm -rf "$(VENV)/demo"
	AAICLICK_HOME="$(CURDIR)/$(VENV)/demo/home" AAICLICK_LOG_DIR="$(CURDIR)/$(VENV)/demo/logs" $(BIN)/python examples/demo.py

# Requirements of the web UI tests: Chromium, and axe-core for accessibility checks.
AXE := $(VENV)/axe/node_modules/axe-core/axe.min.js

browser: $(AXE)
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq && \
	    apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core; } || \
	  { echo "The tests of the web UI need Chromium on PATH. As root: apt-get install chromium" >&2; exit 2; }

$(AXE): $(STAMP)
	@command -v npm >/dev/null || { echo "The tests of the web UI need npm, for axe-core. As root: apt-get install npm" >&2; exit 2; }
	npm install --loglevel=error --no-audit --no-fund --prefix $(VENV)/axe axe-core@4

# Requirement of the connection pooler tests.
pgbouncer:
	@PATH="$$PATH:/usr/sbin" command -v pgbouncer >/dev/null || \
	  { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq && \
	    apt-get install -qq -y --no-install-recommends pgbouncer; } || \
	  { echo "The tests of connection poolers need PgBouncer. As root: apt-get install pgbouncer" >&2; exit 2; }

# Tests of one file run in one process (tests/conftest.py), so that shared fixtures are created once. Unit tests run last.
test: install browser pgbouncer
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

# Unit tests and the core of engine and data on embedded servers; no browser, no other requirements. Under a minute on two cores.
FAST := tests/unit tests/integration/engine/test_graph.py tests/integration/engine/test_api.py tests/integration/engine/test_idempotency.py \
  tests/integration/data/test_objects.py tests/integration/data/test_context.py
test-fast: install
	$(BIN)/python -m pytest -n auto --dist loadfile -q -k 'not two_thousand and not big_job' $(FAST)

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/basedpyright

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Three seeds of 100,000 tasks, with the faults and targets of docs/internals/reliability.md. A shorter run: CHAOS="--tasks 5000 --minutes 3".
CHAOS ?= --tasks 100000 --calm-tasks 20000 --minutes 20 --bars --faults worker,zombie,postgres,clickhouse,network
chaos: install
	for seed in 1 2 3; do $(BIN)/aaiclick chaos run --seed $$seed $(CHAOS) || exit 1; done

# One hour of steady load; fails if memory, files, rows or tables grow.
SOAK ?= --minutes 60
soak: install
	$(BIN)/aaiclick chaos soak $(SOAK)

# Known vulnerabilities of the installed dependencies; needs the network.
audit: install
	$(BIN)/python -m pip install --quiet 'pip-audit>=2.7,<3'
	$(BIN)/python -m pip_audit --local --skip-editable

# Random chains of operations compared with polars; `make test` runs 25 of them.
CHAINS ?= 10000
conformance: install
	$(BIN)/python -m tests.integration.data.chains --chains $(CHAINS)
	INTERLEAVINGS=all $(BIN)/python -m pytest -q tests/integration/engine/test_interleavings.py

bench: install
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
