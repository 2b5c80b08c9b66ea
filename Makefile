# Every target does its own set-up. While working: `make quick`. Before a change lands: `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Bytecode is compiled at the first import, not at installation, because most modules of these
# packages are never imported. It must be kept, or every process compiles all of torch again.
export PYTHONDONTWRITEBYTECODE :=
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

# One thread per worker, without spinning, so that workers do not slow each other down. Three workers
# for two cores, because tests wait for servers, disks and other processes. Five failures end a run.
ONE_THREAD := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
WORKERS ?= 3
PYTEST := $(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --maxfail 5

# The tests that fail first when something breaks: contracts on small shapes, a training of each
# kind (language model, fine-tuning, task), a server, the formats on disk.
QUICK := $(addprefix tests/, \
  test_architecture.py test_atomic.py test_config.py test_docs.py test_lock.py test_strict_json.py \
  cli/test_cli.py cli/test_embed.py contracts/test_exact_and_fast.py contracts/test_golden_loss.py \
  contracts/test_backends.py contracts/test_order.py contracts/test_published_vectors.py \
  contracts/test_round_trip.py corpus embed/test_elmo.py embed/test_embedder.py formats \
  lm/test_finetune.py lm/test_pretrain.py model/test_bilm.py model/test_mix.py model/test_softmax.py \
  serve/test_app.py serve/test_batcher.py tasks/test_train.py text train weights/test_checkpoint.py \
  weights/test_folder.py)

.PHONY: demo quick test test-full test-integrations test-flair test-keras test-pythons
.PHONY: setup lint types suite docs ci dist wasm clean

demo: $(VENV)/core
	$(BIN)/python examples/two_senses.py

quick: lint types
	$(PYTEST) --dist worksteal -m "not slow" $(QUICK)

test: lint types docs suite

suite: $(VENV)/extras
	$(PYTEST) --dist worksteal --ignore tests/integrations

# Integrations are separate, because their packages take long to install. Each test file runs on one
# worker, so that only one Ray cluster runs at a time. Some formats need these packages.
test-integrations: $(VENV)/integrations test-flair test-keras
	$(PYTEST) --dist loadfile tests/integrations tests/formats

test-flair: $(VENV)/flair/ready
	$(ONE_THREAD) $(VENV)/flair/bin/python -m pytest tests/integrations/test_flair.py

test-keras: $(VENV)/keras/ready
	$(ONE_THREAD) $(VENV)/keras/bin/python -m pytest tests/integrations/test_keras.py

# Every test once, after `make setup`: what .ci/run does. Flair and Keras are separate targets.
ci: lint types docs
	$(PYTEST) --dist worksteal

# Every sweep at full size, which takes most of an hour.
test-full: $(VENV)/integrations
	ELMORE_FULL=1 $(PYTEST) --timeout 1800 --dist worksteal

# The wheel on every other installed Python, without torch.
find_python = $(firstword $(wildcard $(HOME)/.pyenv/versions/3.$(1).*/bin/python) $(shell command -v python3.$(1)))
OTHER_PYTHONS := $(foreach minor,12 13 14,$(if $(call find_python,$(minor)),$(minor)))

test-pythons: $(VENV)/integrations $(OTHER_PYTHONS:%=$(VENV)/python3.%/ready)
	ELMORE_FULL=1 $(BIN)/python -m pytest tests/integrations/test_package.py -k other_pythons

lint: $(VENV)/extras
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/extras
	$(BIN)/pyrefly check --python-interpreter-path $(BIN)/python

# A commit always gives the same bytes: every file has the same date.
dist: $(VENV)/integrations
	$(BIN)/python -m hatchling build -d dist

# Compiles the native library for browsers; the compiler has 425 MB, so it is not part of .venv.
wasm:
	$(PYTHON) -m venv $(VENV)/wasm
	$(VENV)/wasm/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt ziglang numpy jaxtyping
	PYTHONPATH=. $(VENV)/wasm/bin/python -m elmore.browser.compile

# Writes build/site; a warning is an error.
docs: $(VENV)/docs
	$(BIN)/python docs/build_site.py

# Installed without dependencies, which .venv has already.
PEERS := simple-elmo-pytorch torchmetrics lightning-utilities

# The pip bundled with Python takes twice as long to resolve versions.
define NEW_VENV
$(PYTHON) -m venv $(VENV)
$(INSTALL) --upgrade pip
endef

# All extras of .venv, with one resolution of versions instead of four.
EVERYTHING := test,docs,ray,hf,spacy,sklearn,onnx

setup: $(VENV)/everything

$(VENV)/everything: pyproject.toml constraints.txt
	$(NEW_VENV)
	$(INSTALL) hatchling -e ".[$(EVERYTHING)]"
	$(INSTALL) --no-deps $(PEERS)
	touch $(VENV)/core $(VENV)/extras $(VENV)/docs $(VENV)/integrations $@

# A marker file in .venv records what is installed, so a second call does nothing.
$(VENV)/core: pyproject.toml constraints.txt
	$(NEW_VENV)
	$(INSTALL) -e .
	touch $@

$(VENV)/extras: $(VENV)/core
	$(INSTALL) -e ".[test]"
	touch $@

$(VENV)/docs: $(VENV)/core
	$(INSTALL) -e ".[docs]"
	touch $@

$(VENV)/integrations: $(VENV)/extras
	$(INSTALL) --no-deps $(PEERS)
	$(INSTALL) hatchling -e ".[ray,hf,spacy,sklearn,onnx]"
	touch $@

# Flair and Keras have separate environments on top of .venv, where other packages are found.
PACKAGES := import sysconfig; print(sysconfig.get_path("purelib"))

define over_venv
$(BIN)/python -m venv $(1)
echo "import site; site.addsitedir('$$($(BIN)/python -c '$(PACKAGES)')')" \
  > "$$($(1)/bin/python -c '$(PACKAGES)')/over_venv.pth"
endef

$(VENV)/flair/ready: $(VENV)/integrations tests/integrations/flair.txt
	$(call over_venv,$(@D))
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps -r tests/integrations/flair.txt
	touch $@

$(VENV)/keras/ready: $(VENV)/integrations
	$(call over_venv,$(@D))
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt keras
	touch $@

# The requirements of elmore, without elmore: the test installs the wheel.
$(VENV)/python3.%/ready: $(VENV)/integrations
	$(call find_python,$*) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt .
	$(@D)/bin/python -m pip uninstall --quiet --yes elmore
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .hypothesis .ruff_cache
