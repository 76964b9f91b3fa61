# make demo | check | test | bench | lint | conformance | faults | pythons: each sets up what it needs first, into .venv, from pinned
# versions. `make check` is for every commit: lint, types and the deterministic tests. `make test` runs all tests; a real one
# that fails is run again alone, and if it then passes the run ends with `FLAKY: ...` (`make test STRICT=1` fails on those).
# CONTRIBUTING.md says more.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Bytecode is kept, whatever the shell says: tests start hundreds of processes, and each would compile what it imports.
export PYTHONDONTWRITEBYTECODE :=

# Deterministic tests keep a core busy; real ones wait for brokers and clients two thirds of their time.
CORES := $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
WORKERS ?= $(shell expr 2 \* $(CORES) + 1)
STRICT ?=

.PHONY: setup demo check test bench lint style types deterministic conformance faults pythons native collected classes parts clean

setup: $(STAMP)

$(STAMP): requirements-dev.txt pyproject.toml setup.py
	@bash tools/preflight.sh $(PYTHON)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -r requirements-dev.txt
	@ONCELOG_COMPILE_LATER=1 $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

native: setup
	@$(BIN)/python tools/build_native.py

test: setup
	@$(MAKE) --no-print-directory -j 2 collected classes
	@$(BIN)/python -m pytest tests -n $(WORKERS) --dist loadfile --no-loadscope-reorder --repeat-real $(if $(STRICT),--strict-real)

check: native
	@$(MAKE) --no-print-directory -j 2 --output-sync=target deterministic types style

deterministic: native
	@$(BIN)/python -m pytest tests -m deterministic -n $(CORES) --dist loadfile --no-loadscope-reorder -q

# Bytecode of all tests, so that no worker compiles what another does. What is wrong with a test they will tell.
collected: native
	-@$(BIN)/python -m pytest tests --collect-only -qq >/dev/null

classes: parts
	@$(BIN)/python -m tests.support.spark

parts: setup
	@$(BIN)/python -m tests.support.parts

lint: style types

style: setup
	@$(BIN)/ruff check src tests bench tools
	@$(BIN)/ruff format --check src tests bench tools

types: setup
	@$(BIN)/mypy

demo: native
	@$(BIN)/oncelog demo

# make bench | make bench ROWS="latency start" | make bench AGAINST=COMMIT [ROWS="..."]: is it slower than that commit?
bench: native
	@$(BIN)/python -m bench $(if $(AGAINST),--against $(AGAINST)) $(ROWS)

conformance: native parts
	@$(BIN)/python -m pytest tests/conformance --brokers=oncelog,kafka

# An hour: 120 kills of a broker, 200,000 damaged requests, transactions under 200 kills for each client; pipelines on
# Spark through every fault, and 120 random kills; twice the cases that Hypothesis makes up for `make test`.
faults: native classes
	@ONCELOG_SOAK=1 $(BIN)/python -m pytest -s tests/client tests/consumer tests/controller tests/coordinator tests/faults \
		tests/hostile tests/interop tests/log tests/once tests/producer tests/records tests/sim tests/spark tests/wire

# Minutes for each: source distribution and wheel, with and without a compiler, on every Python from 3.11 on that is there.
pythons: setup
	@ONCELOG_SOAK=1 $(BIN)/python -m pytest -v tests/test_install.py

clean:
	rm -rf $(VENV) build src/oncelog/*/_*.c src/oncelog/*/_*.so
