# make demo and make test do all their set-up themselves: Debian packages and Open vSwitch when run as root, a virtual
# environment in .venv in any case. The second time they find it done.

# make test PYTHON=python3.13 has an environment of its own, so that several Pythons can be tested by turns.
PYTHON ?=
VENV := .venv$(if $(PYTHON),-$(notdir $(PYTHON)))
BIN := $(VENV)/bin
KERNEL := $(wildcard apps/*/*/*.c controller/*/*.c)
STAMP := $(VENV)/installed
IS_ROOT := $(shell [ "$$(id -u)" -eq 0 ] && echo yes)

.PHONY: help setup tools environment packages ovs demo demo-cluster figures screenshots test test-kernel check dist site clean

help:
	@echo "make demo    see DETS protect a TCP tenant from a UDP blast (as root on Open vSwitch, else on a model)"
	@echo "make demo-cluster   the same with three controllers that share switches; one is killed in the middle"
	@echo "make figures a paper's figures and claims, on the model; FABRIC=ovs: on Open vSwitch (root); PAPER=dets"
	@echo "make test    all tests; without root those on real Open vSwitch are skipped"
	@echo "make test-kernel   those on the kernel datapath alone: native, or in user-mode-linux"
	@echo "make screenshots   the pictures of the web UI in docs/, light and dark"
	@echo "make check   ruff and mypy"
	@echo "make dist    what a release has, in dist/: sdist, wheels, Debian package, container's files"
	@echo "make site    the documents as a site in build/site, which needs no network (npm)"
	@echo "make setup   what the others need: packages, .venv, tools of tests in .setup"
	@echo "make clean   remove what setup and tests made, results/ excepted"

setup:
	@$(MAKE) --no-print-directory -j2 environment tools

tools: packages
	@scripts/test-tools

environment: $(STAMP)
	@$(BIN)/python -m experiments.model.native_build

packages:
	@scripts/debian-packages

# The packages come first (they bring python3-venv) but are no reason to install the environment again.
$(STAMP): setup.py pyproject.toml experiments/setup.py experiments/pyproject.toml constraints.txt build-constraints.txt scripts/venv $(KERNEL) | packages
	@python=$$(scripts/find-python $(PYTHON)) && echo "Installing into $(VENV) with $$python: some minutes" \
	    && scripts/venv $(VENV) "$$python" && touch $@

ovs: | packages
ifeq ($(IS_ROOT),yes)
	@scripts/ovs start
endif

demo: environment ovs
	@$(BIN)/dets demo

demo-cluster: environment ovs
	@$(BIN)/dets demo --cluster

FABRIC ?= model
PAPER ?= dets
figures: environment $(if $(filter ovs,$(FABRIC)),ovs)
	@$(BIN)/dets figures --paper $(PAPER) --fabric $(FABRIC) $(FIGURES_ARGS)

screenshots: environment
	@$(BIN)/python tests/ui/screenshots.py docs

# It compiles the model itself, beside tests that need no compiled model.
test:
	@$(MAKE) --no-print-directory -j2 $(STAMP) tools
	@scripts/run-tests $(BIN)/python $(PYTEST_ARGS)

test-kernel: environment ovs
	@$(BIN)/python -m pytest tests/kernel $(PYTEST_ARGS)

check: environment
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

dist: environment
	@rm -rf dist && scripts/dist dist $(PYTHONS)

site: environment
	@scripts/site $(BIN)/python

clean:
	@scripts/ovs stop
	rm -rf .venv .venv-* .setup build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f controller/*/_*.so apps/*/*/_*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
