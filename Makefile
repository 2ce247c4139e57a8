# The two commands of the README are `make run` and `make test`; both set up a virtual environment first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MODEL ?= mobilenetv2
MODELS := .cache/models

.PHONY: run test lint typecheck lit pytest bench format clean

run: $(VENV)/ready
	@path=$$($(BIN)/python -m benchmarks.models $(MODEL) --cache $(MODELS)) && $(BIN)/mirlo run "$$path" --profile

test: lint typecheck lit pytest

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .

# mypy finds the package by the name of its folder, which is the checkout's and may be any: it is given a link.
typecheck: $(VENV)/ready
	@mkdir -p .cache/typecheck && ln -sfn ../.. .cache/typecheck/mirlo
	$(BIN)/mypy

lit: $(VENV)/ready
	$(BIN)/lit -s --no-progress-bar test

pytest: $(VENV)/ready
	$(BIN)/pytest -q

bench: $(VENV)/ready
	$(BIN)/python -m benchmarks --against onnxruntime --models $(MODELS)

format: $(VENV)/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .cache build *.egg-info

$(VENV)/ready: pyproject.toml setup.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[test]'
	@touch $@
