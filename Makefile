# Two commands do all of their own set-up: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# A thread for each worker, and none that spins while it waits: they would keep each other from work.
# Where much fails there is no use in waiting for the rest.
APART := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
TWO_AT_ONCE := $(APART) $(BIN)/python -m pytest -n 2 --maxfail 5

.PHONY: demo test test-integrations test-pythons lint types suite docs dist clean

demo: $(VENV)/core
	$(BIN)/python examples/two_senses.py

test: lint types docs suite

# Beside other people's packages, which take their time to install. A file is one worker's: one Ray
# is enough for two cores.
test-integrations: $(VENV)/integrations $(VENV)/flair/ready $(VENV)/keras/ready
	$(TWO_AT_ONCE) --dist loadfile tests/integrations tests/formats
	$(VENV)/flair/bin/python -m pytest tests/integrations/test_flair.py
	$(VENV)/keras/bin/python -m pytest tests/integrations/test_keras.py

# The wheel on other Pythons, those of them that are at hand; each has its own torch, up to 5 GB.
at_hand = $(firstword $(wildcard $(HOME)/.pyenv/versions/3.$(1).*/bin/python) $(shell command -v python3.$(1)))
OTHERS := $(foreach minor,12 13 14,$(if $(call at_hand,$(minor)),$(minor)))

test-pythons: $(VENV)/integrations $(OTHERS:%=$(VENV)/python3.%/ready)
	$(BIN)/python -m pytest tests/integrations/test_package.py -k other_pythons

lint: $(VENV)/extras
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/extras
	$(BIN)/pyrefly check --python-interpreter-path $(BIN)/python

suite: $(VENV)/extras
	$(TWO_AT_ONCE) --dist worksteal

# The same bytes from the same commit, whenever it is built: every file in them has one date.
dist: $(VENV)/integrations
	$(BIN)/python -m hatchling build -d dist

# Into build/site; a warning fails it.
docs: $(VENV)/docs
	$(BIN)/python docs/build_site.py

# A file in .venv stands for what is installed there, so a second call has nothing to do.
$(VENV)/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e .
	touch $@

$(VENV)/extras: $(VENV)/core
	$(INSTALL) -e ".[test]"
	touch $@

$(VENV)/docs: $(VENV)/core
	$(INSTALL) -e ".[docs]"
	touch $@

# The peers get no dependencies of their own; what they need is here already.
$(VENV)/integrations: $(VENV)/extras
	$(INSTALL) --no-deps simple-elmo-pytorch torchmetrics lightning-utilities
	$(INSTALL) hatchling -e ".[ray,hf,spacy,sklearn,onnx]"
	touch $@

# Flair and Keras have environments of their own, laid over .venv: what they lack is found there.
PACKAGES := import sysconfig; print(sysconfig.get_path("purelib"))

define over_venv
$(BIN)/python -m venv $(1)
echo "import site; site.addsitedir('$$($(BIN)/python -c '$(PACKAGES)')')" \
  > "$$($(1)/bin/python -c '$(PACKAGES)')/over_venv.pth"
endef

$(VENV)/flair/ready: $(VENV)/integrations tests/integrations/flair.txt
	$(call over_venv,$(@D))
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/integrations/flair.txt
	touch $@

$(VENV)/keras/ready: $(VENV)/integrations
	$(call over_venv,$(@D))
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt keras
	touch $@

# What elmore depends on, without elmore: the test brings the wheel.
$(VENV)/python3.%/ready: $(VENV)/integrations
	$(call at_hand,$*) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt .
	$(@D)/bin/python -m pip uninstall --quiet --yes elmore
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .hypothesis .ruff_cache
