# make demo | test | test-long | check | bench | docs: each does the set-up it needs, once, in .venv.
PYTHON ?= python3
BIN := .venv/bin
# Byte code is made of what is used, when it is used: half the processor time, and 300 MB less.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# One thread per test process, and one process more than cores: some tests wait for others.
WORKERS ?= $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")

.PHONY: demo test test-long test-slow test-cuda test-lowest check format bench soak docs setup clean

# Byte code is kept, in .venv and not beside the sources, also where the environment forbids it:
# without it each of many processes compiles all that it imports.
BYTECODE := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/.venv/bytecode

demo: .venv/ready
	$(BYTECODE) $(BIN)/simgrad demo

PYTEST := $(BYTECODE) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile \
	--no-loadscope-reorder

test: .venv/ready-all
	$(PYTEST) -m "not slow and not long"

# Kills, several processes, exports: nearly half of the processor time of all, in few tests.
test-long: .venv/ready-all
	$(PYTEST) -m "long and not slow"

test-slow: .venv/ready-all
	$(BIN)/python -m pytest -m slow --timeout=3600

# On a machine with an NVIDIA GPU; elsewhere all of it is skipped.
test-cuda: .venv/ready-all
	$(BIN)/python -m pytest -m cuda

# With the lowest versions that pyproject.toml declares; test tools are the newest that go with them.
test-lowest: .venv-lowest/ready
	PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 .venv-lowest/bin/python -m pytest -n $(WORKERS) \
		--dist loadfile -m "not slow and not long"

.venv-lowest/ready: pyproject.toml tools/lowest.py
	test -x .venv-lowest/bin/python || $(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet packaging
	.venv-lowest/bin/python tools/lowest.py train serve tune faiss onnx > .venv-lowest/lowest.txt
	.venv-lowest/bin/python -m pip install --quiet --no-compile -c .venv-lowest/lowest.txt \
		-e ".[train,serve,tune,test]"
	touch $@

check: .venv/ready-all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/ready-all
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# e.g. BENCH="training --record"
bench: .venv/ready-all
	$(BIN)/python -m benchmarks $(BENCH)

# Kills, bad input, fuzzing and load for about an hour; e.g. SOAK="--minutes 1".
soak: .venv/ready-all
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.hardening.soak $(SOAK)

# The site, into site/. To read it with its search: python -m http.server -d site
docs: .venv/ready-docs
	$(BIN)/python docs/builder/pages.py build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -f build/site/mkdocs.yml -d $(CURDIR)/site
	@echo "site/index.html"

setup: .venv/ready-all

# Set up again only when what is installed changes. The demo needs neither tests nor tools.
.venv/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) "torch==$$(sed -n 's/^torch==//p' constraints.txt)"
	$(INSTALL) -c constraints.txt -e ".[train]"
	touch $@

.venv/ready-all: .venv/ready
	$(INSTALL) -c constraints.txt -e ".[train,serve,test,dev]"
	touch $@

.venv/ready-docs: .venv/ready
	$(INSTALL) -c constraints.txt -e ".[docs,train,serve]"
	touch $@

clean:
	rm -rf site .venv .venv-lowest .pytest_cache .mypy_cache .ruff_cache
