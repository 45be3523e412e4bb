# brepfind: everything a person types. Each target does its own set-up; repeated, it installs nothing.
# `make help` explains the targets (the text behind ## on their lines).

PYTHON ?= python3.11
VENV   := .venv
BIN    := $(CURDIR)/$(VENV)/bin

# DVC starts the stages with the `python` it finds first, so the environment's folder leads the path.
export PATH := $(BIN):$(PATH)
# Nobody is told that this runs: DVC's analytics are off in .dvc/config, MLflow's and others' here.
export DO_NOT_TRACK := true
export MLFLOW_DISABLE_TELEMETRY := true
# DGL asks for its backend on its first import otherwise.
export DGLBACKEND := pytorch

.DEFAULT_GOAL := help
.PHONY: help setup repro test test-all test-ui lint types format pretrain pretrained-signatures check-gpu ui clean
BENCHES := bench-extract bench-encoder bench-ranks bench-doctor bench-twins bench-extract-memory bench-train bench-words bench-scale
.PHONY: $(BENCHES) bench-sample

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

# One stamp for the whole set-up: it is older than the lock or the package's metadata when they change.
$(VENV)/.installed: requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "brepfind needs Python 3.11: install it, or name it with make PYTHON=..."; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(VENV)/.installed ## create .venv with the exact versions of requirements.lock

repro: setup ## run the pipeline: STEP files in, a trained, checked and evaluated model out
	dvc repro

ui: setup ## MLflow's page on http://127.0.0.1:5000, to read and compare runs
	mlflow ui --host 127.0.0.1 --port 5000 --backend-store-uri sqlite:///$(CURDIR)/mlflow.db

pretrain: setup ## train the encoder without captions and write data/pretrained/ (minutes)
	dvc repro split
	PYTHONPATH=src python -m brepfind.pipeline.pretrain

pretrained-signatures: setup ## write down again what the shipped encoder has seen, as twins are known today
	dvc repro split
	PYTHONPATH=src python -m brepfind.pipeline.pretrain --only-signatures

test: setup ## the tests, the real `dvc repro` included (minutes)
	python -m pytest -m "not slow and not ui"

test-all: setup ## the tests, and the slow ones
	python -m pytest -m "not ui"

$(VENV)/.installed-ui: requirements-ui.lock $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-ui.lock
	@touch $@

test-ui: $(VENV)/.installed-ui ## the pages, in a real browser (needs the package chromium); screenshots in build/screenshots
	python -m pytest tests/ui

lint: setup ## style and the rule that a room imports only from the rooms below it
	ruff check .
	ruff format --check .
	lint-imports

types: setup ## mypy
	mypy

format: setup ## put the code in the one format
	ruff check --fix .
	ruff format .

check-gpu: setup ## two training steps on each GPU in fp32, bf16 and fp16; says so where there is none
	PYTHONPATH=src python -m benchmarks.check_gpu

bench-extract: ## STEP extraction beside brepgraph and beside Open CASCADE's reading alone
bench-encoder: ## the encoder beside a plain transcription of the paper: time and peak memory
bench-ranks: ## ranks of 100,000 x 100,000 beside the bare matrix products
bench-doctor: ## the doctor beside one pass over the same bytes
bench-twins: ## twins found, missed and mistaken
bench-words: ## what the trained model makes of other units, typos, other languages
bench-train: ## what the guard costs and a second process gains, beside a bare loop
bench-extract-memory: ## memory over 2,000 files
bench-scale: ## time and memory of every stage at 1,000 and 10,000 parts, and what breaks on the way to a million (half an hour to over an hour; goes on if stopped)
$(BENCHES): bench-%: setup
	PYTHONPATH=src python -m benchmarks.$(subst -,_,$*)

bench-sample: setup ## R@K of the model, of it without this and that, of ridge and of chance (an hour)
	dvc repro split sanitize
	PYTHONPATH=src python -m benchmarks.sample

# These versions for everyone, so that the bench is about the same parts; a copy of KiCad's libraries
# that one already has is taken with `make data-kicad KICAD=/usr/share/kicad`.
KICAD := data/kicad/share
KICAD_PACKAGES := kicad-packages3d=6.0.10-1 kicad-footprints=6.0.11-1
KICAD_SUMS := \
  e4ee3179c3935885a262e41543a675208ad5b3077d348728cac46f534d01109a  kicad-packages3d_6.0.10-1_all.deb\n\
  06c022eae7d40181238f86dc4d2d4d257364880ab89b9e41f553b690e5c502c1  kicad-footprints_6.0.11-1_all.deb\n

.PHONY: data-kicad bench-kicad
data-kicad: setup $(KICAD) ## KiCad's real parts with real words into data/kicad: fetched from Debian (402 MB), imported
	brepfind corpus kicad $(KICAD) --out data/kicad/corpus

# What is fetched is kept, what was half unpacked is not: a second call goes on.
data/kicad/share:
	mkdir -p data/kicad/debs
	cd data/kicad/debs && apt-get download $(KICAD_PACKAGES) || { echo "bookworm's packages are \
	needed: add its repository to apt, or give a KiCad share folder with KICAD=..."; exit 2; }
	cd data/kicad/debs && printf '$(KICAD_SUMS)' | sha256sum --check --quiet
	rm -rf data/kicad/unpacked && mkdir data/kicad/unpacked
	set -e; for deb in data/kicad/debs/*.deb; do \
	  dpkg-deb --fsys-tarfile $$deb | tar -x -C data/kicad/unpacked --exclude='*.wrl'; done
	mv data/kicad/unpacked/usr/share/doc/kicad-packages3d/copyright data/kicad/
	mv data/kicad/unpacked/usr/share/kicad $@ && rm -r data/kicad/unpacked

data/kicad/corpus/corpus.json:
	$(MAKE) data-kicad

# UV-Net's CNNs fill and free large tensors in every step; glibc would give the pages back each time
# and fetch them again, which is half of the step.
bench-kicad: setup data/kicad/corpus/corpus.json ## R@K on 2,000 real parts, beside UV-Net, ridge, file names and chance (an hour, 12 GB for UV-Net; goes on if stopped)
	MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=34359738368 PYTHONPATH=src python -m benchmarks.kicad

clean: ## remove what runs and tests made; keeps .venv, raw data and the shipped checkpoint
	rm -rf data/corpus data/graphs data/split data/weights data/model data/embeddings data/index reports metrics build/screenshots .brepfind
