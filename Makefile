# make demo | test | bench | lint | conformance | faults: each sets up what it needs first, into .venv, from pinned versions.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test bench lint conformance faults native clean

setup: $(STAMP)

$(STAMP): requirements-dev.txt pyproject.toml setup.py
	@bash tools/preflight.sh $(PYTHON)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -r requirements-dev.txt
	@ONCELOG_COMPILE_LATER=1 $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

native: setup
	@$(BIN)/python setup.py -q build_ext --inplace --parallel 2

test: setup native
	@$(BIN)/python -m tests.support.parts
	@$(BIN)/python -m tests.support.spark
	@$(BIN)/python -m pytest tests -n 4 --dist loadfile --no-loadscope-reorder

lint: setup
	@$(BIN)/ruff check src tests bench tools
	@$(BIN)/ruff format --check src tests bench tools
	@$(BIN)/mypy

demo: setup native
	@$(BIN)/oncelog demo

bench: setup native
	@$(BIN)/python -m bench

conformance: setup native
	@$(BIN)/python -m tests.support.parts
	@$(BIN)/python -m pytest tests/conformance --brokers=oncelog,kafka

# Most of an hour: 120 kills of a broker, 200,000 damaged requests, transactions under 200 kills for each client;
# pipelines on Spark through every fault, and 120 random kills.
faults: setup native
	@$(BIN)/python -m tests.support.parts
	@$(BIN)/python -m tests.support.spark
	@ONCELOG_SOAK=1 $(BIN)/python -m pytest -s tests/faults/test_kill.py tests/hostile/test_mutations.py \
		tests/faults/test_transactions_kill.py tests/spark/faults tests/spark/cluster tests/spark/table/test_crashes.py \
		tests/spark/table/test_kills.py tests/spark/sink tests/spark/source/test_equivalence.py

clean:
	rm -rf $(VENV) build src/oncelog/*/_*.c src/oncelog/*/_*.so
