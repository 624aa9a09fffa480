# The front door. `make` prints this help; every target sets up what it needs by itself.
PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
PY     := $(VENV)/bin/python
READY  := $(VENV)/.ready
# Spark needs a Java runtime; .ci/java-home finds a fit one or takes it from PyPI.
WITH_JAVA = JAVA_HOME="$$(.ci/java-home $(VENV))" PYSPARK_PYTHON="$(CURDIR)/$(PY)" PYSPARK_DRIVER_PYTHON="$(CURDIR)/$(PY)"

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types fmt docs check bench-read bench-write bench-history bench-committers bench-delta bench test-cost test-cost-deep model crash-cuts docs-conflicts interleavings sim sim-long load clean

help: ## print this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: $(READY) ## create the virtual environment with everything the other targets need

$(READY): pyproject.toml .ci/constraints.txt
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --upgrade pip
	@$(PY) -m pip install --quiet --constraint .ci/constraints.txt --editable '.[dev]'
	@touch $(READY)

demo: $(READY) ## create a graph in a local directory and read it with Spark
	@$(WITH_JAVA) $(PY) examples/01_create_and_read.py

# Two processes, each with its own Spark and S3 server. WORKERS=0 runs all in one, for a debugger.
WORKERS ?= 2
test: $(READY) ## run all tests (ARGS="-k name" to choose, WORKERS=2)
	@$(WITH_JAVA) $(PY) -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

lint: $(READY) ## check style and formatting
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .

types: $(READY) ## check types (mypy, strict)
	@$(VENV)/bin/mypy

fmt: $(READY) ## format the code
	@$(VENV)/bin/ruff check --fix --quiet . || true
	@$(VENV)/bin/ruff format .

docs: $(READY) ## regenerate the generated pages in docs/
	@$(PY) -m omnigraph_spark.reference docs

check: lint types test ## everything CI runs

bench-read: $(READY) ## measure reading against Spark's parquet; writes docs/benchmarks/read.md
	@$(WITH_JAVA) $(PY) -m benchmarks.read

model: $(READY) ## check the protocol model: the full one must hold, each weakened one must break
	@$(PY) model/run.py $(ARGS)

bench-write: $(READY) ## measure writing against Spark's parquet and pylance; writes docs/benchmarks/write.md
	@$(WITH_JAVA) $(PY) -m benchmarks.write

$(VENV)/.bench: $(READY)
	@$(PY) -m pip install --quiet --constraint .ci/constraints.txt --editable '.[dev,bench]'
	@touch $(VENV)/.bench

bench-history: $(VENV)/.bench ## measure a write by depth of history and by round trip; writes docs/benchmarks/history.md
	@$(PY) -m benchmarks.history

bench-committers: $(VENV)/.bench ## measure up to 100 committers on one branch; writes docs/benchmarks/committers.md
	@$(PY) -m benchmarks.committers

bench-delta: $(VENV)/.bench ## measure against deltalake and pylance in one process; writes docs/benchmarks/delta.md
	@$(PY) -m benchmarks.delta

bench: bench-read bench-write bench-history bench-committers bench-delta ## all benchmarks, one after the other

test-cost: $(READY) ## run the cost gates alone: requests and hops on S3, counted
	@$(WITH_JAVA) $(PY) -m pytest tests/cost $(ARGS)

test-cost-deep: $(READY) ## the cost gates at a thousand commits of history
	@OMNIGRAPH_COST_DEPTHS=1,10,100,1000 $(WITH_JAVA) $(PY) -m pytest tests/cost --timeout=1800 $(ARGS)

crash-cuts: $(READY) ## cut every verb at every durable request, on S3 and on disk
	@OMNIGRAPH_CUTS=all $(PY) -m pytest tests/proof -k "cuts" -rP --show-capture=stdout $(ARGS)

docs-conflicts: $(READY) ## regenerate docs/conflicts.md from the table the conflict tests use
	@$(PY) -m tests.proof.verdicts docs/conflicts.md

interleavings: $(READY) ## all orders of the phases of two writers, and many of the other pairs
	@OMNIGRAPH_INTERLEAVINGS=all $(PY) -m pytest tests/proof/test_interleavings.py -rP -p no:logging $(ARGS)

SEED ?= 1
sim: $(READY) ## play one seed of the simulation and print its steps (SEED=1)
	@$(PY) -m tests.simulation.sim --seed $(SEED) --trace

sim-long: $(READY) ## play a thousand seeds of the simulation (ARGS="--first 1001" for others)
	@$(PY) -m tests.simulation.sim --seeds 1000 $(ARGS)

MINUTES ?= 10
load: $(READY) ## a hundred one-row writers on S3 for MINUTES=10, some killed all the time
	@$(PY) -m tests.proof.load --minutes $(MINUTES) $(ARGS)

clean: ## remove the virtual environment and caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-graph spark-warehouse
