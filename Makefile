# EarVoice. `make demo` and `make test` do all their own set-up.
SHELL := /bin/bash
.DELETE_ON_ERROR:

PYTHON3 ?= python3
BIN := .venv/bin

# The options of `make demo`: AUDIO=my.wav TO=de POLICY=edatt
DEMO_OPTIONS := $(if $(AUDIO),--audio "$(AUDIO)") $(if $(TO),--to $(TO)) $(if $(POLICY),--policy $(POLICY))

.PHONY: help setup demo test lint format check soak bench model clean

help: ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: ## build .venv/ with everything; the command is .venv/bin/earvoice
	@$(PYTHON3) tools/setup_environment.py

demo: setup ## translate a recording live: make demo AUDIO=my.wav TO=de POLICY=edatt
	@$(BIN)/earvoice demo $(DEMO_OPTIONS)

test: setup lint check ## everything that CI runs

check: setup ## the tests alone
	@OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest

soak: setup ## long streams, noise, ten live streams: some minutes
	@OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest tests/soak

bench: setup ## what the services cost beside the bare networks, and live
	@$(BIN)/python benchmarks/overhead.py && $(BIN)/python benchmarks/live_streams.py

lint: setup ## formatting, style, types, import rules, protos
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/buf lint && $(BIN)/buf format --diff --exit-code

format: setup ## put files into house form
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix . && $(BIN)/buf format --write

clean: ## remove what was built
	rm -rf .venv gen build dist .mypy_cache .ruff_cache .pytest_cache
