# Set-up is part of every target: `make demo` and `make test` need Python 3.11 or later, make and a network with PyPI.
PYTHON ?= python3
SGLANG ?= 0.5.23
BIN := .venv/bin
STAMP := .venv/.installed-$(SGLANG)
PLUGINS := $(wildcard plugins/*/pyproject.toml)

.PHONY: demo test test-fast test-engine lint format bench install

install: $(STAMP)

$(STAMP): pyproject.toml $(PLUGINS)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		"sglang==$(SGLANG)" --editable ".[dev]" $(foreach plugin,$(PLUGINS),--editable $(dir $(plugin)))
	touch $@

demo: $(STAMP)
	$(BIN)/python tests/demo.py

# Everything, the real engine on the CPU included, but for boots that the gate cannot afford.
test: $(STAMP)
	$(BIN)/python -m pytest -m "not thorough"

# The part without SGLang, under a minute.
test-fast: $(STAMP)
	$(BIN)/python -m pytest -m "not engine and not sglang"

# All that boots the engine.
test-engine: $(STAMP)
	$(BIN)/python -m pytest -m engine

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy .

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python tests/bench/bench.py
