# Everything that a contributor does. Each target sets up first, if something has changed since the last time.

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/setup.stamp
# Spark takes its Java from here: an older one on PATH must not get in its way.
JAVA = JAVA_HOME="$$(sh scripts/java-home.sh)"
# More for pytest: make test ARGS="-k interval -x"
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-cluster fuzz chaos lint format bench api dist lock clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml requirements.lock scripts/setup.sh scripts/java-home.sh
	@sh scripts/setup.sh
	@touch $@

setup: $(STAMP) ## make .venv with all packages and the project, and see that there is a Java

demo: $(STAMP) ## join a year of flights and weather as streams
	@$(JAVA) $(VENV)/bin/watersmeet demo

test: lint ## lint, then every fast test and the fixed sample of the slow ones
	$(JAVA) $(if $(ARGS),$(PY) -m pytest $(ARGS),sh scripts/test.sh $(PY))

test-all: lint ## lint, then every test there is
	@sh scripts/browser.sh
	$(JAVA) WATERSMEET_TEST_ALL=1 $(if $(ARGS),$(PY) -m pytest $(ARGS),sh scripts/test.sh $(PY))

test-cluster: $(STAMP) ## every test on a cluster of hosts that share no disk, made on this machine
	$(JAVA) WATERSMEET_TEST_ALL=1 $(PY) -m pytest tests/cluster

fuzz: $(STAMP) ## try a million statements, and damaged records and checkpoints (make fuzz ARGS="sql --first 5000 --count 100" for some)
	$(PY) -m tests.fuzzing $(ARGS)

chaos: $(STAMP) ## let real faults befall real Spark: kills, disks, servers, damage (make chaos ARGS="'worker killed' --seed 5" for some)
	$(JAVA) $(PY) -m tests.chaos $(ARGS)

lint: $(STAMP) ## check style, format, types and layers
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	@$(VENV)/bin/lint-imports --no-cache

format: $(STAMP) ## format, and mend what the linter can mend
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(STAMP) ## run the benchmarks: all workloads (make bench ARGS="inner left" for some), then kernels alone
	@$(JAVA) $(VENV)/bin/watersmeet bench $(or $(ARGS),--all)
	@$(if $(ARGS),true,set -e; for script in benchmarks/bench_*.py; do echo "== $$script"; $(PY) -m "benchmarks.$$(basename "$$script" .py)"; done)

api: $(STAMP) ## write pages for the Python API, made from its docstrings, into build/api
	$(PY) scripts/api_pages.py build/api

dist: $(STAMP) ## build the wheel and the source distribution into dist
	$(PY) -m hatchling build

# Pins and hashes only, for all systems and Pythons that the project supports. make lock UPGRADE=--upgrade moves
# everything to the newest release.
lock: $(STAMP) ## write requirements.lock anew from pyproject.toml
	$(VENV)/bin/uv pip compile pyproject.toml --all-extras --group dev $(UPGRADE) \
	  --output-file requirements.lock --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	  --custom-compile-command 'make lock'

clean: ## remove .venv, caches, builds and the demo's output
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist .watersmeet demo-out
	rm -rf spark-warehouse metastore_db derby.log
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
