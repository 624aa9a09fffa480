# The front door. `make` prints this help; every target sets up what it needs by itself.
PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
PY     := $(VENV)/bin/python
READY  := $(VENV)/.ready
# Spark needs a Java runtime; .ci/java-home finds a fit one or takes it from PyPI.
WITH_JAVA = JAVA_HOME="$$(.ci/java-home $(VENV))" PYSPARK_PYTHON="$(CURDIR)/$(PY)" PYSPARK_DRIVER_PYTHON="$(CURDIR)/$(PY)"

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types fmt docs check bench-read clean

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

test: $(READY) ## run all tests (ARGS="-k name" to choose)
	@$(WITH_JAVA) $(PY) -m pytest $(ARGS)

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

clean: ## remove the virtual environment and caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-graph spark-warehouse
