# Set-up is part of every target: `make demo` and `make test` need Python 3.11 or later, make and a network with PyPI.
PYTHON ?= python3
SGLANG ?= 0.5.23
BIN := .venv/bin
STAMP := .venv/.installed-$(SGLANG)
SPECULATORS ?= 0.9.0
SPECFORGE ?= 0.2.0
PEERS := build/peers-venv
PEERS_STAMP := $(PEERS)/.installed-$(SPECULATORS)-$(SPECFORGE)
PLUGINS := $(wildcard plugins/*/pyproject.toml)

.PHONY: demo test test-fast test-engine test-versions test-peers lint format bench install

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

# The part without SGLang, and without what takes long by itself: 75 s on two cores.
test-fast: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not engine and not sglang and not slow and not wheels"

# All that boots the engine.
test-engine: $(STAMP)
	$(BIN)/python -m pytest -m engine

# Every supported version of SGLang in turn, on the CPU; an hour on two cores. Writes tests/versions/record.json.
test-versions: $(STAMP)
	$(BIN)/python -m pytest -m versions tests/versions

# What `convert` writes and `inspect` reads, against speculators' and SpecForge's own loaders: an environment of theirs.
test-peers: $(PEERS_STAMP)
	$(PEERS)/bin/python -m pytest -m peers tests/peers

# Both without their dependencies. SpecForge pins sglang==0.5.14 with its CUDA kernels, torch==2.11.0, wandb and more that
# only training and capture import; speculators asks for torchvision and torchaudio, which nothing here imports and whose
# PyPI wheels do not go with a CPU build of torch. What their loaders do import is listed, within the ranges of both:
# transformers is SpecForge's pin; of this torch PyPI has no CPU-only wheel, so a plain machine takes the CUDA build.
$(PEERS_STAMP): pyproject.toml $(PLUGINS)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check \
		"torch==2.13.0" "transformers==5.8.1" "datasets>=4,<=5.1.0" "hs-connectors==$(SPECULATORS)" "loguru>=0.7.2,<=0.7.3" \
		aiohttp openai psutil pydantic pydantic-settings safetensors "pytest>=8.3" "hypothesis>=6.100" \
		--editable . --editable plugins/eagle3-adapters-llama
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
		"speculators==$(SPECULATORS)" "specforge==$(SPECFORGE)"
	touch $@

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy .

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python tests/bench/bench.py
	$(BIN)/python tests/bench/convert.py
