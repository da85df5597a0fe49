# Every target works in a fresh clone with Python 3.11+ and make. Everything is installed in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
STAMP := $(VENV)/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Keep compiled bytecode; otherwise every test process would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install installs image browser pgbouncer prometheus demo test test-failed test-fast check format chaos soak audit conformance docs bench clean

install: $(STAMP)

# aaiclick without test tools. Bytecode is compiled on first use: two thirds of it would never be used.
$(RUNTIME): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "aaiclick needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo 'Installing aaiclick into $(VENV): about 1 GB, including two database servers.'
	@start=$$(date +%s); $(BIN)/python -m pip install --quiet --no-compile --editable . && \
	  echo "Installed in $$(($$(date +%s) - start)) s; $(VENV) has $$(du -sm $(VENV) | cut -f1) MB."
	@touch $(RUNTIME)

# Test tools in the same environment.
$(STAMP): $(RUNTIME)
	@echo 'Installing the test tools into $(VENV): about 0.8 GB.'
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[dev]'
	@touch $(STAMP)

# A shop on embedded servers with their own data; on a terminal the web UI stays until Ctrl-C.
demo: $(RUNTIME)
	$(BIN)/aaiclick demo

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

# Requirement of the tests of alert rules: promtool, without the services of its package and without root.
PROMTOOL := $(VENV)/prometheus/usr/bin/promtool

prometheus:
	@command -v promtool >/dev/null || test -x $(PROMTOOL) || $(MAKE) --no-print-directory $(PROMTOOL)

$(PROMTOOL):
	@mkdir -p $(VENV)/prometheus && cd $(VENV)/prometheus && command -v apt-get >/dev/null && \
	  { test "$$(id -u)" != 0 || apt-get update -qq; } && apt-get download -qq prometheus && \
	  dpkg-deb --extract prometheus_*.deb . && rm prometheus_*.deb || \
	  { echo "The tests of alert rules need promtool on PATH. As root: apt-get install prometheus" >&2; exit 2; }

# Tests of one file run in one process (tests/conftest.py), so that shared fixtures are created once. Unit tests run last.
test: install browser pgbouncer prometheus
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

# The failed tests of `make test`, if they are at most five, alone in one process.
test-failed: install
	$(BIN)/python -m tests.repeat_failed

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

# Random chains of operations compared with polars, of which `make test` runs 25, and all cases of large test matrices.
CHAINS ?= 10000
CONFORMANCE := tests/integration/store $(addprefix tests/integration/engine/test_,interleavings.py flow_interleavings.py \
  wait_interleavings.py fault_scenarios.py query_plans.py queue_model.py flow_model.py)
conformance: install
	$(BIN)/python -m tests.integration.data.chains --chains $(CHAINS)
	CASES=all $(BIN)/python -m pytest -q $(CONFORMANCE)

# Tools of the documentation site.
DOCS_STAMP := $(VENV)/.docs
$(DOCS_STAMP): $(RUNTIME)
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[docs]'
	@touch $(DOCS_STAMP)

# Every package and extra in clean environments, with pip and uv; the demo on each Python of PYTHONS. Needs the network.
PYTHONS ?= $(shell command -v $(PYTHON))
installs: install
	$(BIN)/python -m pip install --quiet 'uv>=0.8,<1'
	TEST_INSTALL=1 TEST_PYTHONS="$(PYTHONS)" $(BIN)/python -m pytest -q -s tests/e2e/test_install.py

# The image of deploy/Containerfile, and its tests in containers. Without a registry, IMAGE_BASE=debian makes a base with
# debootstrap, as root. PODMAN may have options, for example "podman --storage-driver=vfs".
PODMAN ?= podman
PYTHON_IMAGE ?= docker.io/library/python:3.13-slim
IMAGE_BUILD ?= --network=host
image: install
ifeq ($(IMAGE_BASE),debian)
	deploy/debian-base.sh $(PODMAN)
	$(PODMAN) build $(IMAGE_BUILD) --build-arg PYTHON_IMAGE=localhost/python-base -f deploy/Containerfile -t aaiclick .
else
	$(PODMAN) build $(IMAGE_BUILD) --build-arg PYTHON_IMAGE=$(PYTHON_IMAGE) -f deploy/Containerfile -t aaiclick .
endif
	$(PODMAN) images localhost/aaiclick
	TEST_IMAGE=localhost/aaiclick TEST_PODMAN="$(PODMAN)" $(BIN)/python -m pytest -q -s tests/e2e/test_image.py

# The documentation site in build/site; any warning, such as a dead link, is an error.
docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet --clean
	cp docs/llms.txt build/site/

bench: install
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
