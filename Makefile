# Every target sets up what it needs in .venv, from python3 and a package index. A stamp in .venv
# stands for one finished installation and is redone when what it was made from changes.

PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP_VERSION := 26.3
PROJECTS := engine/pyproject.toml client/pyproject.toml service/pyproject.toml
BACKENDS := tests/engine/test_ops.py tests/engine/test_backends.py
GPU := tests/engine/test_gpu.py tests/service/test_gpu.py
TOOLCHAINS := postgresql golang-go golang-gopkg-validator.v2-dev default-jdk-headless libjakarta-annotation-api-java curl
CONSOLE := service/telegrad_service/console/static
NOTEBOOK := client/telegrad/notebook/static
PACKAGES := 'import sysconfig; print(sysconfig.get_path("purelib"))'
# Says every few seconds what a long command does.
PROGRESS := $(PYTHON) .ci/progress.py
# Modules are compiled when they are first imported: to compile all of them takes longer than to unpack them.
PIP_INSTALL := -m pip install --no-input --disable-pip-version-check --no-compile
INSTALL := $(PROGRESS) $(BIN)/python $(PIP_INSTALL) --constraint constraints.txt --build-constraint constraints.txt
# What builds our packages: installed once, as pip would make an environment for each of them.
BUILDERS := hatchling editables numpy ml_dtypes orjson

# After a run that has passed whole.
record = $(MAKE) --no-print-directory --silent digests-$(1) > .ci/$(1).sha256 && \
	echo "Commit .ci/$(1).sha256: .ci/run leaves this run out until what is listed there changes"

# What the first run says before it installs anything, and how long the tests take.
FIRST_demo := the packages, NumPy, SciPy, FastAPI and scikit-learn (360 MB in $(VENV)). That takes one to three minutes
FIRST_test := the packages, pytest and PyTorch (1 GB in $(VENV), or 6 GB with CUDA: see CONTRIBUTING.md). That takes some minutes
TEST_TIME := some four minutes on two cores
GATEWAY_TIME := about 5 minutes on two cores
ALL_TIME := some twenty minutes on two cores

# More processes than the two cores: tests wait, mostly for servers that start. Neighbours share the servers of a module,
# so each process begins with tests in a row.
# `make test-gpu` installs CuPy, and runs what needs nothing else.
TESTS := $(BIN)/python -m pytest --numprocesses 3 --dist worksteal --ignore=tests/engine/test_cupy_names.py

# The tests start hundreds of processes, and each would compile every module.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: .first-demo .first-test help demo test test-all test-gpu test-gateway test-clients test-openapi test-scale test-versions \
	digests-clients digests-console digests-gpu digests-scale digests-versions coverage toolchains browser bench-gpu chaos serve check docs docs-pages docs-serve bench load \
	openapi stubs console test-console screenshots dist format clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo '  demo, test, serve and bench take ARGS, as in: make test ARGS="tests/engine -x"'

demo: .first-demo $(VENV)/.stamp-demo ## Train a classifier of handwritten digits against a server; ARGS=--keep keeps the server
	@echo "Loading Telegrad"
	@$(BIN)/python examples/digits.py $(ARGS)

test: .first-test $(VENV)/.stamp-test ## Run the tests that a change needs, with PyTorch as the oracle
	@echo "The tests take $(TEST_TIME); ARGS names some, which then run in full: make test ARGS=tests/service"
	$(TESTS) $(ARGS)

test-all: .first-test $(VENV)/.stamp-test toolchains ## Run all tests, with all their parameters
	@echo "All tests take $(ALL_TIME)"
	$(TESTS) --all --numprocesses 4 $(ARGS)

coverage: $(VENV)/.stamp-coverage ## Run the tests of make test, and print which lines they do not reach, by file
	$(TESTS) --cov --cov-report=term-missing $(ARGS)

test-gpu: $(VENV)/.stamp-gpu ## Run the ops on CuPy; without an NVIDIA GPU, on a stand-in, and that CuPy has what they use
	$(BIN)/python -m pytest tests/engine/test_cupy_names.py --numprocesses 2 $(ARGS)
	PYTHONPATH=tests/fake_gpu $(BIN)/python -m pytest $(BACKENDS) --device cuda:1 --numprocesses 2 $(ARGS)
	$(BIN)/python -m pytest $(GPU) $(ARGS)
	@if nvidia-smi --list-gpus > /dev/null 2>&1; then \
		$(MAKE) --no-print-directory $(VENV)/.stamp-cuda && \
		$(BIN)/python -m pytest $(BACKENDS) --device cuda $(ARGS) && \
		$(BIN)/python -m pytest tests/end_to_end/test_gpu.py $(ARGS); \
	else echo "test-gpu: nvidia-smi finds no NVIDIA GPU here, so nothing was computed on one"; fi
	@if [ -n "$$CI" ] && [ -z "$(ARGS)" ]; then $(call record,gpu); fi

test-gateway: $(VENV)/.stamp-test ## The tests of the SDK and REST once more, through a gateway with two workers
	@echo "These tests take $(GATEWAY_TIME); ARGS=--all runs all of them"
	$(TESTS) --through-gateway --ignore=tests/engine --ignore=tests/deployment \
		--ignore=tests/service/cluster $(ARGS)

test-clients: $(VENV)/.stamp-clients $(VENV)/.stamp-npm-clients $(VENV)/.stamp-schemathesis toolchains ## Generate clients from the OpenAPI document, compile and run them
	$(BIN)/python -m pytest tests/clients --numprocesses 2 $(ARGS)
	@if [ -n "$$CI" ] && [ -z "$(ARGS)" ]; then $(call record,clients); fi

test-openapi: $(VENV)/.stamp-test $(VENV)/.stamp-schemathesis ## Send a server requests that schemathesis makes of the OpenAPI document
	$(BIN)/python -m pytest tests/clients/test_requests_from_document.py --numprocesses 2 $(ARGS)

test-scale: $(VENV)/.stamp-test ## Hold the simulation of clusters to laws that it must obey, and pages to what it prints
	$(BIN)/python -m pytest tests/scale --numprocesses 2 $(ARGS)
	@if [ -n "$$CI" ] && [ -z "$(ARGS)" ]; then $(call record,scale); fi

test-versions: $(VENV)/.stamp-packages ## Run the server's tests on the lowest and the newest versions, and on later Pythons
	$(BIN)/python -m tests.versions $(VENV)/versions
	@$(call record,versions)

# What decides whether these runs pass, besides our code. `.ci/run` leaves a run out if it is as in .ci/*.sha256.
digests-clients:
	@sha256sum pyproject.toml constraints.txt docs/how-to/clients.md openapi/*.json \
		$(sort $(shell find tests/clients -type f -not -path '*/__pycache__/*'))

# The API's documents stand for the rest of the server: the page reads what they describe.
digests-console:
	@sha256sum $(sort $(shell find console tests/console service/telegrad_service/console engine/telegrad_engine/inspection \
		-type f -not -path '*/node_modules/*' -not -path '$(CONSOLE)/*' -not -path '*/__pycache__/*')) \
		service/telegrad_service/resources/graph.py openapi/*.json constraints.txt

# CuPy, the stand-in for it, and all that computes on them.
digests-gpu:
	@sha256sum pyproject.toml constraints.txt tests/conftest.py $(sort $(shell find engine tests/engine tests/op_cases \
		tests/fake_gpu -type f \( -name '*.py' -o -name '*.toml' \)))

digests-scale:
	@sha256sum constraints.txt docs/explanation/scale.md docs/explanation/simulation.md docs/explanation/cluster-measured.md \
		$(sort $(shell find benchmarks/scale tests/scale -type f -not -path '*/__pycache__/*'))

digests-versions:
	@sha256sum pyproject.toml constraints.txt $(PROJECTS) tests/versions.py
	@$(PYTHON) -m tests.versions --list

chaos: $(VENV)/.stamp-packages ## Kill a server under load, 200 times, and compare its durable sessions with undisturbed ones
	$(BIN)/python -m tests.chaos $(ARGS)

serve: $(VENV)/.stamp-packages ## Start a server: make serve ARGS="--port 8000"
	$(BIN)/telegrad serve $(ARGS)

check: $(VENV)/.stamp-lint stubs ## Check format, style, types and who imports whom; change nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: docs-pages ## Build the documentation site in build/site; a broken link is an error
	$(BIN)/zensical build --strict

docs-serve: docs-pages ## Serve the documentation site on http://127.0.0.1:8001 while you edit docs/
	@$(BIN)/python -m tools.site --watch & trap "kill $$!" EXIT; $(BIN)/zensical serve --dev-addr 127.0.0.1:8001 $(ARGS)

docs-pages: $(VENV)/.stamp-docs stubs
	$(BIN)/python -m tools.site

bench-gpu: ## Measure against PyTorch on an NVIDIA GPU; without one, say so
	@if nvidia-smi --list-gpus > /dev/null 2>&1; then \
		$(MAKE) --no-print-directory $(VENV)/.stamp-bench $(VENV)/.stamp-gpu $(VENV)/.stamp-cuda && \
		$(BIN)/python -m benchmarks.gpu $(ARGS); \
	else echo "bench-gpu: nvidia-smi finds no NVIDIA GPU here, so nothing was measured"; fi

bench: $(VENV)/.stamp-bench $(VENV)/.stamp-peers ## Measure against PyTorch and other peers, side by side in one run
	$(BIN)/python -m benchmarks $(ARGS)

load: $(VENV)/.stamp-test ## Load a server: many sessions, a flood, hostile requests; ARGS names some of them
	$(BIN)/python -m tests.load $(ARGS)

openapi: $(VENV)/.stamp-packages ## Write openapi/openapi.json from the app
	$(BIN)/telegrad openapi

console: $(CONSOLE)/index.html ## Build the console, the page that the server shows to a browser, and its graphs in notebooks; needs Node.js

test-console: $(CONSOLE)/index.html $(VENV)/.stamp-console $(VENV)/.stamp-npm-console browser ## Test the console in a browser, which is Debian's Chromium
	$(BIN)/python -m pytest tests/console $(ARGS)
	@if [ -n "$$CI" ] && [ -z "$(ARGS)" ]; then $(call record,console); fi

screenshots: $(CONSOLE)/index.html $(VENV)/.stamp-console browser ## Write the console's pictures to docs/assets
	$(BIN)/python -m tests.console.screenshots

stubs: $(VENV)/.stamp-packages ## Write the type stubs from the catalogue of ops
	$(BIN)/python -m telegrad_engine.stubs

dist: $(VENV)/.stamp-dist $(CONSOLE)/index.html ## Build what is published into dist/: a wheel and a source distribution of each package
	@rm -rf dist
	@for folder in engine client service; do \
		$(BIN)/python -m build --quiet --no-isolation --outdir dist $$folder || exit 1; \
	done
	$(BIN)/twine check --strict dist/*

format: $(VENV)/.stamp-lint ## Format the code and mend what can be mended by rule
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

clean: ## Remove .venv, caches and build outputs
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf dist build console/node_modules $(CONSOLE) $(NOTEBOOK)
	find . -path ./.git -prune -o -name '*.pyi' -exec rm {} + -o -type d -name __pycache__ -prune -exec rm -rf {} +

.first-demo .first-test: .first-%:
	@test -e $(VENV)/.stamp-$* || echo "The first 'make $*' installs $(FIRST_$*)."

# What is installed ------------------------------------------------------------------------

# The pip that comes with Python 3.11 knows neither dependency groups nor build constraints.
$(VENV)/.stamp-venv: Makefile
	@echo "Creating $(VENV) with pip $(PIP_VERSION)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Telegrad needs Python 3.11 or later")'
	@$(PROGRESS) $(PYTHON) -m venv $(VENV)
	@$(PROGRESS) $(BIN)/python $(PIP_INSTALL) pip==$(PIP_VERSION)
	@touch $@

$(VENV)/.stamp-packages: $(VENV)/.stamp-venv $(PROJECTS) constraints.txt
	@echo "Installing engine, client and service"
	@$(INSTALL) $(BUILDERS)
	@$(subst --build-constraint constraints.txt,--no-build-isolation,$(INSTALL)) --editable engine --editable 'client[local]' --editable 'service[postgres]'
	@touch $@

# One stamp for each dependency group of pyproject.toml.
$(VENV)/.stamp-%: $(VENV)/.stamp-packages pyproject.toml
	@echo "Installing the dependency group '$*'$(if $(filter test gpu cuda bench clients coverage,$*), (PyTorch is large))"
	@$(INSTALL) --group $*
	@touch $@

# What tests run on Node.js: generated clients, and Lighthouse. Without it they are skipped, except in continuous
# integration.
$(VENV)/.stamp-npm-%: $(VENV)/.stamp-venv tests/%/package.json tests/%/package-lock.json
	@mkdir -p $(VENV)/$*
	@cp tests/$*/package.json tests/$*/package-lock.json $(VENV)/$*
	@if command -v npm > /dev/null; then \
		echo "Installing the npm packages of tests/$*" && \
		$(PROGRESS) npm --prefix $(VENV)/$* ci --no-fund --no-audit --loglevel error; \
	else echo "npm is missing: the tests in tests/$* that need it are left out"; fi
	@touch $@

console/node_modules/.stamp: console/package.json console/package-lock.json
	@command -v npm > /dev/null || { echo "The console needs Node.js 20.19 or later, with npm; the API works without it"; exit 1; }
	@echo "Installing the npm packages of the console"
	@cd console && npm ci --no-fund --no-audit --loglevel error
	@touch $@

$(CONSOLE)/index.html: console/node_modules/.stamp $(shell find console/src -type f) console/index.html \
		console/vite.config.js console/vite.notebook.config.js console/tsconfig.json console/tsconfig.test.json engine/telegrad_engine/__init__.py
	@echo "Building the console"
	@cd console && npm run --silent test && npm run --silent build

# Requests made of the OpenAPI document. Apart, because it is a pytest plugin too, which the other tests would load.
$(VENV)/.stamp-schemathesis: $(VENV)/.stamp-venv tests/clients/requirements.txt
	@echo "Installing schemathesis"
	@$(PROGRESS) $(PYTHON) -m venv $(VENV)/schemathesis
	@$(PROGRESS) $(VENV)/schemathesis/bin/python $(PIP_INSTALL) --requirement tests/clients/requirements.txt
	@touch $@

# PostgreSQL, Go, a JDK and the libraries of clients in these languages, from Debian's packages. Only continuous integration
# installs them: on a developer's machine the tests of what is missing are skipped.
toolchains:
	@if [ -n "$$CI" ] && command -v apt-get > /dev/null && ! dpkg --status $(TOOLCHAINS) > /dev/null 2>&1; then \
		echo "Installing with apt-get: $(TOOLCHAINS)" && $(PROGRESS) apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive $(PROGRESS) apt-get install -qq --no-install-recommends $(TOOLCHAINS); \
	fi

# Chromium for the console's tests, from Debian's packages, as for the toolchains above.
browser:
	@if [ -n "$$CI" ] && command -v apt-get > /dev/null && ! command -v chromium > /dev/null; then \
		echo "Installing Chromium with apt-get" && apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends chromium fonts-dejavu-core > /dev/null; \
	fi

# Servers to measure against, apart, because they bring other versions of what ours is made of. Monarch needs PyTorch,
# which is large: a .pth file lends it that of $(VENV). If they cannot be installed, the rows that need them say so.
$(VENV)/.stamp-peers: $(VENV)/.stamp-venv benchmarks/peers/requirements.txt
	@echo "Installing what 'make bench' measures against"
	@if $(PROGRESS) $(PYTHON) -m venv $(VENV)/peers && \
		$(PROGRESS) $(VENV)/peers/bin/python $(PIP_INSTALL) --requirement benchmarks/peers/requirements.txt && \
		$(BIN)/python -c $(PACKAGES) > "$$($(VENV)/peers/bin/python -c $(PACKAGES))/torch.pth"; then touch $@; \
	else echo "It could not be installed; what is measured against it is left out"; fi
