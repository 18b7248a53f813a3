# `make demo` and `make test` do all the set-up themselves.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.PHONY: help demo chromium test lab docs readme samples reports bench clean

help:  ## Show the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## / \t/' | expand -t 12

.venv/base: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/all: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[all]'
	touch .venv/base $@

.venv/bench: .venv/all
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	touch $@

demo: .venv/base  ## From the sample clips to checked quotes, offline
	$(BIN)/vid2context demo

chromium:
	@command -v chromium >/dev/null 2>&1 || test -n "$(VID2CONTEXT_CHROMIUM)" || \
	  { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq \
	    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	       chromium >/dev/null; } || \
	  echo "No Chromium: the browser tests will be skipped (apt-get install chromium)"

test: .venv/all chromium  ## All set-up, then lint, types and every test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check nbs tests tools
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist loadfile

lab: .venv/all  ## Open the notebooks in JupyterLab
	mkdir -p $(HOME)/.jupyter
	$(BIN)/nbdev-install-hooks
	$(BIN)/jupyter lab nbs

docs: .venv/all  ## Build the site into _proc/_site
	$(BIN)/python tools/site.py

readme: .venv/all  ## Write README.md from nbs/index.ipynb
	$(BIN)/python tools/readme.py

samples: .venv/all  ## Make data/clips and data/golden again
	$(BIN)/python -c "from pathlib import Path; from vid2context.samples import make_samples; make_samples(Path('data'))"

reports: .venv/bench  ## Make data/runs again and run the reports (PARTS="pages")
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE OPENBLAS_NUM_THREADS=1 \
	  $(BIN)/python tools/reports.py $(PARTS)

bench: .venv/bench  ## Time the hot paths beside their alternatives (PARTS="frames scan")
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE OPENBLAS_NUM_THREADS=1 \
	  $(BIN)/python tests/benchmarks $(PARTS)

clean:  ## Remove what the targets made, the environment too
	rm -rf .venv _proc demo .vid2context
