# `make install` once; then `make demo`, `make test`, `make lint`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help install demo test fuzz lint fix docs serve clean browser

help:  ## show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

install: $(STAMP)  ## .venv with all extras and development tools, exact versions

$(STAMP): pyproject.toml constraints.txt scripts/install
	@PYTHON=$(PYTHON) VENV=$(VENV) scripts/install
	@touch $@

browser:  ## Debian's headless Chromium, for the dashboard's tests
	@scripts/browser

demo: install  ## the main job end to end on the embedded default (ARGS=--exit ends there)
	@$(BIN)/pickwise demo $(ARGS)

test: install browser  ## every test (ARGS='-k name' narrows)
	@$(BIN)/pytest -n auto $(ARGS)

fuzz: install  ## look for inputs that break the ways in, MINUTES=10 long
	@scripts/fuzz $(MINUTES)

lint: install  ## ruff, mypy strict
	@scripts/lint

fix: install  ## what ruff can mend by itself
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

docs: install  ## the generated pages of docs/
	@scripts/docs

serve: install  ## the service on its default ports
	@$(BIN)/pickwise serve $(ARGS)

clean:  ## forget the environment and all caches
	@rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
