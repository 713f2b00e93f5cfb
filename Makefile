# Everything a fresh clone needs: Python ≥ 3.10 with pip, and make. Nothing here needs root.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# In the order of collection, so that the long ones, which wait more than they compute, come first; more than cores, too.
PYTEST_WORKERS := -n 3 --dist loadgroup --no-loadscope-reorder

.PHONY: help install demo test faults flood check lint screenshot clean

help:
	@echo "make demo        set everything up and run the main job on the embedded cluster"
	@echo "make test        set everything up and pass all tests but those of faults"
	@echo "make faults      inject every fault of docs/faults.md for real, and pass"
	@echo "make flood       let a rank print a million lines a second for 10 s; make test does 2 s of it"
	@echo "make check       what gates a change: ruff, mypy, import contracts, tests, faults"
	@echo "make screenshot  draw the README's pictures from the real app"
	@echo "make clean       remove the virtual environment and caches"

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt hatch_build.py $(wildcard dttui/locale/*/LC_MESSAGES/*.po)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (the first time takes some minutes: torch is large)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch]' --group dev
	@touch $@

demo: $(STAMP)
	@if [ -t 0 ] && [ -t 1 ]; then $(BIN)/dttui --demo; \
	else $(BIN)/dttui --demo --apply examples/gpt/job.yaml; fi

test: $(STAMP)
	$(BIN)/python -m pytest $(PYTEST_WORKERS) --ignore=tests/faults

faults: $(STAMP)
	$(BIN)/python -m pytest $(PYTEST_WORKERS) tests/faults

flood: $(STAMP)
	DTTUI_TEST_FLOOD_S=10 $(BIN)/python -m pytest -s tests/agent/test_flood.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test faults

screenshot: $(STAMP)
	$(BIN)/python -m tests.tui.screens docs

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
