# make demo | test | check | bench: each does the set-up it needs, once, in .venv.
PYTHON ?= python3
BIN := .venv/bin
# One thread per test process: the suite runs one process per core.
WORKERS ?= auto

.PHONY: demo test test-slow test-cuda check format bench soak setup clean

demo: .venv/ready
	$(BIN)/simgrad demo

test: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow"

test-slow: .venv/ready
	$(BIN)/python -m pytest -m slow --timeout=3600

# On a machine with an NVIDIA GPU; elsewhere all of it is skipped.
test-cuda: .venv/ready
	$(BIN)/python -m pytest -m cuda

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# e.g. BENCH="training --record"
bench: .venv/ready
	$(BIN)/python -m benchmarks $(BENCH)

# Kills, bad input, fuzzing and load for about an hour; e.g. SOAK="--minutes 1".
soak: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.hardening.soak $(SOAK)

setup: .venv/ready

# Set up again only when what is installed changes.
.venv/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "torch==$$(sed -n 's/^torch==//p' constraints.txt)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[serve,test,dev]"
	touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache
