# `make demo` and `make test` work on a fresh machine without root: each creates the virtual environment it needs.
# Every step leaves a stamp in .venv, so that nothing is installed twice.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	"$$p" -c 'import sys; raise SystemExit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo "$$p" && break; \
	done)
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-deep lint typecheck rocq rocq-catalog notebooks docs picture bench bench-assembly \
	bench-tensor-assembly bench-gpu readme golden clean

help:
	@echo "make demo       derive attention and LayerNorm and run them over real data in unequal pieces"
	@echo "make test       run the tests;   make test-deep   run those that take long"
	@echo "make lint       ruff, its formatter;   make typecheck   mypy on the installed package"
	@echo "make rocq       check the theorems of proofs/theories (skipped without coqc)"
	@echo "make rocq-catalog  print every spec of the catalog for coqc and write benchmarks/records/rocq.md (some minutes)"
	@echo "make notebooks  execute the notebooks, each in a clean kernel, into notebooks/executed"
	@echo "make docs       write the API reference into build/docs;   make picture   draw the README's picture"
	@echo "make bench-gpu  time CUDA kernels beside PyTorch (needs a GPU)"
	@echo "make bench-assembly  compile the catalog by every family of schedules and count registers and spills"
	@echo "make bench-tensor-assembly  the same for kernels on tensor cores"
	@echo "make bench      run the benchmarks;   make readme   write the table of verdicts in docs/catalog.md"
	@echo "make golden     write the printed kernels in tests/golden, which tests compare"
	@echo "make clean      remove everything that was created"

# A system Python may lack the venv module's installer; virtualenv and uv do the same job.
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "redalg needs Python 3.11, 3.12 or 3.13; none was found. Try: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV) \
	  || $(PYTHON) -m virtualenv --clear $(VENV) \
	  || uv venv --clear --seed --python $(PYTHON) $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install -q --retries 10 --timeout 60 -e .
	@touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install -q --retries 10 --timeout 60 -e '.[test]'
	@touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install -q --retries 10 --timeout 60 -e '.[dev]'
	@touch $@

$(VENV)/.notebook: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install -q --retries 10 --timeout 60 -e '.[notebook]'
	@touch $@

demo: $(VENV)/.demo
	$(BIN)/python -m redalg demo

# One BLAS thread per worker: the workers are the parallelism. How the suites are cut: tests/README.md.
PYTEST = OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test: $(VENV)/.test
	$(PYTEST) --ignore tests/deep -m "not deep" $(ARGS)

# What compiles, assembles, emulates or searches for long, and the fast suite's properties on more examples.
test-deep: $(VENV)/.test
	HYPOTHESIS_PROFILE=$(or $(HYPOTHESIS_PROFILE),deep) $(PYTEST) -m "$(or $(DEEP),deep or hypothesis)" $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# On the package as it is installed: links inside it give the folders kernels and proofs their names.
typecheck: $(VENV)/.dev
	$(BIN)/mypy --cache-dir .cache/mypy -p redalg

# In a copy: nothing compiled is left beside the sources.
rocq:
	@command -v coqc >/dev/null || { echo "rocq: skipped, coqc was not found (Debian: apt-get install coq)"; exit 0; }; \
	rm -rf build/rocq && mkdir -p build/rocq && cp proofs/theories/*.v build/rocq && cd build/rocq && \
	for file in $$(grep '\.v$$' ../../proofs/theories/_CoqProject); do \
		echo "coqc $$file" && coqc -Q . Redalg $$file || exit 1; \
	done

rocq-catalog: $(VENV)/.test
	$(BIN)/python -m benchmarks.proofs.rocq --workers $(WORKERS) --out benchmarks/records/rocq.md

notebooks: $(VENV)/.notebook
	$(BIN)/python notebooks/execute.py $(ARGS)

docs: $(VENV)/.test
	$(BIN)/python docs/reference.py build/docs

picture: $(VENV)/.notebook
	$(BIN)/python docs/draw.py

bench: $(VENV)/.test
	$(BIN)/python -m benchmarks $(ARGS)

bench-assembly: $(VENV)/.test
	$(BIN)/python -m benchmarks.gpu.assembly --out benchmarks/records/assembly.jsonl $(ARGS)

bench-tensor-assembly: $(VENV)/.test
	$(BIN)/python -m benchmarks.gpu.tensor_assembly --out benchmarks/records/tensor_assembly.jsonl --workers $(WORKERS) $(ARGS)
	$(BIN)/python -m benchmarks.gpu.mma_assembly --out benchmarks/records/mma_assembly.jsonl --workers $(WORKERS) $(ARGS)

bench-gpu: $(VENV)/.test
	$(BIN)/python -m benchmarks.gpu --out benchmarks/records/gpu.jsonl $(ARGS) && $(BIN)/python -m benchmarks.gpu.report benchmarks/records/gpu.jsonl

readme: $(VENV)/.test
	$(BIN)/python -m tests.support.readme_table

golden: $(VENV)/.test
	$(BIN)/python -m tests.support.golden_sources

clean:
	find redalg -maxdepth 1 -type l -delete
	rm -rf $(VENV) .links .cache build redalg.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
