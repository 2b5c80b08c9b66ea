# Two commands do all of their own set-up: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-integrations lint types suite clean

demo: $(VENV)/core
	$(BIN)/python examples/two_senses.py

test: lint types suite

# Beside other people's packages, which take their time to install.
test-integrations: $(VENV)/integrations
	$(BIN)/python -m pytest tests/integrations

lint: $(VENV)/extras
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/extras
	$(BIN)/pyrefly check --python-interpreter-path $(BIN)/python

suite: $(VENV)/extras
	$(BIN)/python -m pytest -n 2

# A file in .venv stands for what is installed there, so a second call has nothing to do.
$(VENV)/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e .
	touch $@

$(VENV)/extras: $(VENV)/core
	$(INSTALL) -e ".[test]"
	touch $@

# The peers get no dependencies of their own; what they need is here already.
$(VENV)/integrations: $(VENV)/extras
	$(INSTALL) --no-deps simple-elmo-pytorch torchmetrics lightning-utilities
	$(INSTALL) -e ".[ray,hf,spacy,sklearn,onnx]"
	touch $@

clean:
	rm -rf $(VENV) dist .pytest_cache .hypothesis .ruff_cache
