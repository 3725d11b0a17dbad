# Two commands for everybody: `make demo` shows what pipetune does, `make test` runs the tests. Both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test unit slow newest rehearse random lint docs bench clean

# About 940 samples/s: the default loader of a two-core machine feeds half of it, the tuned one all of it.
demo: $(VENV)/demo-ready
	$(BIN)/pipetune doctor --install jpeg-roi || echo "without it, then"
	$(BIN)/pipetune sweep --dataset 'synthetic:caltech256?n=1500' --model resnet50 --device emulated:a100-tf32 \
	    --target 0.9 --prefetch 2 --seconds 3

# Three processes for two cores, because many tests wait; long files (the integration tests) come first.
test: $(VENV)/test-ready
	$(BIN)/python -m pytest -m 'not slow' -n 3 --dist loadfile --no-loadscope-reorder

# While you work: the unit tests that neither simulate much nor start many processes.
unit: $(VENV)/test-ready
	$(BIN)/python -m pytest tests/unit tests/golden -m 'not thorough and not slow' -n 2 --dist loadfile -q

# What takes longer than `make test` may.
slow: $(VENV)/test-ready
	$(BIN)/python -m pytest -m slow -n 2 --dist loadfile

# With the newest Python here (python3.14 and so on, or pyenv's), in an environment of its own, where it is not the same
# as PYTHON and torch can be had for it: the unit tests.
NEWEST := .venv-newest
newest:
	@python=$$(tests/newest_python.sh) || exit 0; \
	$(MAKE) --no-print-directory $(NEWEST)/test-ready VENV=$(NEWEST) PYTHON="$$python" \
	    || { echo "not tested with $$python: its packages cannot be installed"; exit 0; }; \
	$(MAKE) --no-print-directory unit VENV=$(NEWEST)

# The lease of a GPU machine from packing to what comes back, without a GPU, with the Python and torch of that machine's
# image (.venv-rehearse); then the tests of the stand-in CUDA runtime with them. Says so where they cannot be had.
REHEARSE := .venv-rehearse
rehearse: $(VENV)/test-ready
	$(BIN)/python -m tests.rehearse
	$(BIN)/python -m tests.rehearse.image_tests

# In another order each time: what fails here depends on what ran before it. The seed is printed.
random: $(VENV)/test-ready
	$(BIN)/python -m pytest -p randomly -m 'not slow' -n 3 --dist loadfile

lint: $(VENV)/test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The manual, into site/: a broken link, anchor or generated part is an error.
docs: $(VENV)/docs-ready
	$(BIN)/python -m docs.parts --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "the manual: site/index.html"

# Shortened runs of all benchmarks, about an hour; close other programs. `python -m benchmarks --help` runs some of them.
bench: $(VENV)/test-ready
	$(BIN)/python -m benchmarks --quick

clean:
	rm -rf $(VENV) $(NEWEST) $(REHEARSE) .gpu1 .gpu2 site

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo-ready: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[torch,torchcodec,opencv,simplejpeg,dali-cuda130]'
	touch $@

$(VENV)/test-ready: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[torch,torchcodec,opencv,simplejpeg,spdl,dali-cuda130,stacks,notebook,dev]'
	touch $@ $(VENV)/demo-ready

$(VENV)/docs-ready: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[docs]'
	touch $@
