# `make demo` and `make test` need nothing before them: they install, start and build what is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup engine image demo browser test lint types bench clean

help:  ## Show this list.
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP)  ## Make .venv and install the package with its development tools.

$(STAMP): pyproject.toml constraints.txt scripts/setup.sh
	@PYTHON=$(PYTHON) sh scripts/setup.sh $(VENV)
	@touch $@

engine: setup  ## Start a Docker Engine when none answers (as root on Debian: install it too).
	@$(BIN)/python -m agent_runtime.sandboxes.engine

image: engine  ## Build the sandbox image once.
	@$(BIN)/python -m agent_runtime.sandboxes.image

demo: image  ## Fix a real bug in a sandbox, live.
	$(BIN)/agent-runtime run examples/gcd --task "gcd fails for most inputs: find the bug and fix it"

browser:  ## Install Chromium for the test of the HTML page (as root on Debian).
	@command -v chromium >/dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "install chromium" && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; \
	else echo "chromium is missing: the test of the HTML page is skipped"; fi

test: image browser lint types  ## Lint, check types, run all tests.
	$(BIN)/pytest -n 2 --dist loadgroup

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

bench: image  ## Tool calls over the channel against docker exec.
	$(BIN)/agent-runtime bench tools

clean:  ## Remove what was installed and cached here.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
