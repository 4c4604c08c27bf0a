# What a contributor types. `make` alone explains it; everything a target needs is installed by the target itself.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# Empty means every tier; SITE is the size of the site that the cluster tier crawls.
TIERS ?=
SITE  ?= small
IMAGE ?= durable-crawler:dev

# A stamp carries the hash of what it stands for: a warm run does nothing, and a changed lock is noticed
# whatever the files' times say.
hash = $(shell cat pyproject.toml requirements/build.lock $(1) 2>/dev/null | sha256sum | cut -c1-16)
RUNTIME_READY := $(VENV)/.runtime-$(call hash,requirements/runtime.lock)
DEV_READY     := $(VENV)/.dev-$(call hash,requirements/dev.lock)

COMPILE := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

.PHONY: help
help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(DEV_READY) ## Make .venv with everything that development needs, from the hashed lock files

.PHONY: demo
demo: $(if $(wildcard $(DEV_READY)),,$(RUNTIME_READY)) ## Crawl a small site with faults in it, kill the crawl half-way, resume it, show the report
	@$(BIN)/durable-crawler demo

.PHONY: test
test: $(DEV_READY) ## Run every test tier that this machine can run (TIERS=unit,crash  SITE=small|large)
	@SITE=$(SITE) $(BIN)/python -m tests.support.tiers $(if $(TIERS),--tiers $(TIERS))

.PHONY: lint
lint: $(DEV_READY) ## Check style and types: ruff, ruff format, mypy
	@$(BIN)/python -m tests.support.tiers --tiers lint

.PHONY: bench
bench: $(DEV_READY) ## Compare this crawler with others, in turns, on three sites (hours; SITES=synthetic ROUNDS=1 ONLY=ours,wget2)
	@$(BIN)/python -m benchmarks.crawl $(foreach site,$(SITES),--site $(site)) $(if $(ROUNDS),--rounds $(ROUNDS)) \
	  $(if $(ONLY),--only $(ONLY))

.PHONY: bench-parts
bench-parts: $(DEV_READY) ## Take the time of a page apart: fetching, each step of parsing, the frontier (1 minute; SITES=rust-doc)
	@$(BIN)/python -m benchmarks.parts $(foreach site,$(SITES),--site $(site))

.PHONY: bench-frontier
bench-frontier: $(DEV_READY) ## Measure what the frontier costs from 10 thousand to 1 million pages (15 minutes)
	@$(BIN)/python -m benchmarks.frontier

.PHONY: bench-large
bench-large: $(DEV_READY) ## Measure 200,000 pages with 2 million known URLs: is the last tenth as cheap as the first? (15 minutes)
	@$(BIN)/python -m benchmarks.large $(if $(PAGES),--pages $(PAGES))

.PHONY: bench-hosts
bench-hosts: $(DEV_READY) ## Measure whether a page costs the same among 100 and among 10,000 hosts (4 minutes)
	@$(BIN)/python -m benchmarks.hosts

.PHONY: bench-operator
bench-operator: $(DEV_READY) ## Measure what the operator costs with 1,000 CrawlJobs at a real API server (10 minutes)
	@$(BIN)/python -m benchmarks.operator $(if $(JOBS),--jobs $(JOBS))

.PHONY: bench-telemetry
bench-telemetry: $(DEV_READY) ## Measure what telemetry costs a crawl while the Collector is there, away, frozen or refusing (5 minutes)
	@$(BIN)/python -m benchmarks.telemetry

.PHONY: generate
generate: $(DEV_READY) ## Write every generated file: the chart's CRD, rights and dashboards, manifests/, docs/reference/
	@$(BIN)/python -m tools.generate

.PHONY: verify
verify: $(DEV_READY) ## Say which generated file differs from what `make generate` would write
	@$(BIN)/python -m tools.generate --check

.PHONY: lock
lock: ## Choose the newest versions that pyproject.toml allows, and write requirements/
	@test -x $(BIN)/uv || { $(PYTHON) -m venv $(VENV) && $(BIN)/pip install --quiet uv; }
	$(COMPILE) pyproject.toml -o requirements/runtime.lock
	$(COMPILE) pyproject.toml --group dev -o requirements/dev.lock --constraint requirements/runtime.lock
	$(COMPILE) benchmarks/peers/requirements.in -o requirements/peers.lock
	$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	  | $(COMPILE) - -o requirements/build.lock --constraint requirements/dev.lock

.PHONY: image
image: $(DEV_READY) ## Build the container image with Docker (IMAGE=name:tag)
	@$(BIN)/python -c 'from tests.support.cluster import images; images.wheels(images.DOCKER_PYTHON)'
	docker build --tag $(IMAGE) .

.PHONY: kind
kind: $(DEV_READY) ## Make a kind cluster with the operator, a Collector and a crawl to look at; again: upgrade it
	@$(BIN)/python -m tools.kind up

.PHONY: kind-down
kind-down: $(DEV_READY) ## Remove that cluster
	@$(BIN)/python -m tools.kind down

.PHONY: clean
clean: ## Remove the virtual environment, caches and build results
	rm -rf $(VENV) dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find crawler operator tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

# The project itself comes last: without dependencies, so that nothing enters that a lock file does not name, and
# without build isolation, so that the build's own programs are the locked ones too.
define install
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@echo "installing $(1) into $(VENV)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r $(1) -r requirements/build.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@rm -f $(VENV)/.runtime-* $(VENV)/.dev-*
	@touch $@
endef

$(RUNTIME_READY):
	$(call install,requirements/runtime.lock)

$(DEV_READY):
	$(call install,requirements/dev.lock)
