# Two commands: `make quickstart` sets up and judges the bundled kernels on the simulator; `make test` sets up and tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
REQUIREMENTS := requirements/build.txt requirements/dev.txt

.PHONY: quickstart test test-all benchmark requirements clean

quickstart: $(VENV)/.ready
	$(BIN)/ptxbench quickstart

test: $(VENV)/.ready
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/pyright --pythonpath $(BIN)/python
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadgroup

# Also what takes minutes: many seeds, every attempt, every schedule.
test-all: $(VENV)/.ready
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadgroup -m ""

benchmark: $(VENV)/.ready
	$(BIN)/python -m benchmarks --out results/cpu/benchmarks.json --page docs/benchmarks.md

$(VENV)/.ready: $(REQUIREMENTS) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "PTXBench needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 2; }
	@command -v g++ >/dev/null || { echo "PTXBench needs a C++ compiler: apt-get install g++"; exit 2; }
	$(PYTHON) -m venv $(VENV) || { echo "The venv module is missing: apt-get install python3-venv"; exit 2; }
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes $(addprefix -r ,$(REQUIREMENTS))
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	touch $@

# Re-resolves every pinned file; needs `uv`, which the dev extra brings.
requirements:
	printf 'hatchling>=1.27\neditables>=0.5\n' | $(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q - -o requirements/build.txt
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q pyproject.toml -o requirements/runtime.txt
	for extra in dev gpu models local oracles oracles-cute data train fleet serve; do \
	  $(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header -q pyproject.toml --extra $$extra -c requirements/runtime.txt -o requirements/$$extra.txt || exit 1; done

clean:
	rm -rf $(VENV) out .pytest_cache .ruff_cache
