# Everything is set up by the first target you call; nothing outside .venv and the XDG folders is touched.
SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready
CHECKOV := .venv-checkov/.ready
WITH_CHECKOV := PATH="$(CURDIR)/.venv-checkov/bin:$$PATH"

# Hundreds of short commands read what the first of them compiled.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run test simulate losses check bench e2e clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Exactly the locked versions, checked by their hashes; the checkout itself is built by what they include.
LOCKED := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r tools/locked

$(RUNS): pyproject.toml tools/locked/run.txt tools/newest-python
	@python=$$(./tools/newest-python) || exit 1; \
	echo "Setting up .venv with $$($$python --version) and what jobs on this machine need (once)"; \
	$$python -m venv --clear $(VENV) && \
	$(LOCKED)/run.txt && \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . && touch $@

setup: $(READY) ## All parts of tpukit and the tools of its tests in .venv
$(READY): $(RUNS) tools/locked/dev.txt
	@echo "Adding the other parts of tpukit and the tools of its tests (about a minute, once)"; \
	$(LOCKED)/dev.txt && touch $@

run: $(RUNS) ## Train on simulated slices, lose a host on purpose, resume, finish
	@echo "Training examples/02-pretrain on 2 slices × 2 hosts × 4 simulated chips."
	@echo "At step 30 one host is killed on purpose; watch the job resume from its last checkpoint."
	@$(BIN)/tpu run examples/02-pretrain/job.yaml --lose 1-0@30
	@echo
	@$(BIN)/tpu job show pretrain
	@echo
	@echo "Next: see the manifests that GKE would get (README.md goes on from there):"
	@echo "  $(BIN)/tpu job render examples/02-pretrain/job.yaml --set image=us-docker.pkg.dev/my-project/images/train:1 --set workdir=gs://my-bucket/runs/pretrain"

test: $(READY) ## All tests that need only Python (about 5 minutes on two cores)
	$(BIN)/python -m pytest -n 5 --dist=worksteal tests/unit tests/journeys tests/conformance tests/simulation

SEEDS := 10000
FIRST := 0
simulate: $(READY) ## Simulated worlds with faults: SEEDS=N of them, from seed FIRST on
	cd tests && PYTHONHASHSEED=0 ../$(BIN)/python -m simulation --seeds $(SEEDS) --first $(FIRST)

MOMENTS := 50
SEED := 1
losses: $(READY) ## Hosts lost at MOMENTS moments, chosen by SEED, in a sandbox (about 10 minutes)
	cd tests && ../$(BIN)/python losses.py --moments $(MOMENTS) --seed $(SEED)

check: $(READY) $(CHECKOV) ## Format, lint, types, layers, catalogue, manifests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tpukit.catalogue.shapes --check
	$(WITH_CHECKOV) $(BIN)/python -m pytest tests/cluster/test_manifests.py tests/cluster/test_terraform_checkov.py -k checkov

# checkov pins old versions of much of what we use, so it lives by itself.
$(CHECKOV): tools/checkov.txt tools/newest-python
	@python=$$(./tools/newest-python) || exit 1; \
	echo "Setting up checkov in .venv-checkov (about a minute, once)"; \
	$$python -m venv --clear .venv-checkov && \
	.venv-checkov/bin/python -m pip install --quiet --disable-pip-version-check -r tools/checkov.txt && touch $@

# Real Terraform with the real provider, real Kubernetes, JobSet and Kueue. The first time, Go builds them side by side (25
# CPU minutes) and pip installs transformers (4.5 GB), all of it kept outside the checkout; what is missing and cannot be
# built here is a failure with a sentence, never a skip.
e2e: $(READY) $(CHECKOV) ## Everything that needs Terraform, Go and kubectl
	@$(BIN)/python tools/provider/build.py --with-clis & provider=$$!; \
	$(BIN)/python tests/support/transformers_environment.py & transformers=$$!; \
	$(BIN)/python tests/support/browser.py & browser=$$!; \
	$(BIN)/python tests/support/fit_environment.py & fit=$$!; \
	$(BIN)/python -m tpubox.box.binaries; sandbox=$$?; \
	wait $$transformers && wait $$browser && wait $$fit && wait $$provider && exit $$sandbox
	$(WITH_CHECKOV) $(BIN)/python -m pytest -n 3 --dist=loadfile --no-loadscope-reorder tests/cluster

bench: $(READY) ## Tables against peers, installed into their own environment
	$(BIN)/python tests/bench/run.py

clean: ## Remove what make made
	rm -rf $(VENV) .venv-checkov .bench dist
