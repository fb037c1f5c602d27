# `make` alone says what there is.
#
# SECONDS=30 make bench            half of the usual measuring time; SCENARIOS=idle-1k only that one;
#                                  SEGMENT=600 also ten minutes of Mitra alone
# SEED=7 OUT=/var/tmp/r make lab    a round of the laboratory; the same command goes on after Ctrl-C
# TIME=60 TARGET=archive_reader make fuzz   one fuzz target for a minute
# SEEDS=120 DAYS=30 CUTS=150 make endure   what the archive lives through; README=docs/cost.md writes the figures
# KERNELS="amd64-6.1 arm64" make matrix   these of the kernels
# DESTDIR=/tmp/x PREFIX=/usr make install

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# Two compilers at once are slower than one after the other.
.NOTPARALLEL:

# Outside of the checkout, so that a copy or a search of the sources stays small.
export CARGO_TARGET_DIR ?= $(HOME)/.cache/mitra-target
export MITRA_VENV ?= $(HOME)/.cache/mitra-venv
export MITRA_BROWSER ?= $(HOME)/.cache/mitra-browser
MITRA := $(CARGO_TARGET_DIR)/release/mitra
IS_ROOT := $(filter 0,$(shell id -u))
LAB := $(CARGO_TARGET_DIR)/release/mitra-lab

SEED ?= 1
OUT ?=
SECONDS ?= 60
SCENARIOS ?=
SEGMENT ?= 0
TIME ?= 600
SEEDS ?= 120
DAYS ?= 30
CUTS ?= 150
README ?=
TARGET ?=
KERNELS ?=
WRITE ?=
PREFIX ?= /usr/local
DESTDIR ?=
UNITDIR ?= $(PREFIX)/lib/systemd/system

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## the release binary
	@tools/install-deps.sh build
	cargo build --release --locked --bin mitra
	@echo "built $(MITRA)"

.PHONY: web
web: ## the page of mitra serve, which the binary has in it when it is built afterwards; needs Node
	cd web && npm ci --ignore-scripts --no-audit --no-fund && npm run build
	@# Cargo does not see that a directory has come.
	touch crates/app/build.rs

.PHONY: test-web
test-web: web build ## the page in a real browser, served by the real binary: SHOTS=folder keeps what it looked like
	@tools/install-deps.sh browser
	cd web && MITRA=$(MITRA) node test/page.mjs $(SHOTS)

.PHONY: run
run: build ## build, then record, watch and serve this machine (as root it sees everything)
	$(MITRA) live --serve

# Which test is in which tier: tools/test.py.
.PHONY: test
test: ## what a newcomer wants: hermetic tests; as root also those against this kernel
	@tools/install-deps.sh test $(if $(IS_ROOT),kernel browser)
	tools/test.py hermetic kernel

.PHONY: test-kernel
test-kernel: ## as root against this kernel: BPF programs, probes, hostile processes, privileges, full disks
	@tools/install-deps.sh kernel
	tools/test.py kernel

.PHONY: test-search
test-search: ## the same queries to the embedded index and to a real OpenSearch, which is fetched; needs Java and Maven
	@tools/install-deps.sh search
	tools/test.py search

.PHONY: test-lab
test-lab: ## a handful of real incidents, made on this machine, as root
	@tools/install-deps.sh kernel
	tools/test.py lab

.PHONY: test-all
test-all: ## all of them
	@tools/install-deps.sh test kernel browser search cost
	tools/test.py all

.PHONY: lab
lab: build ## real incidents made here, explained and scored, as root, an hour or two: SEED=1 OUT=folder
	@tools/install-deps.sh lab
	cargo build --release --locked -p mitra-lab
	$(LAB) round --seed $(SEED) $(OUT:%=--out %)

.PHONY: lab-pairs
lab-pairs: build ## two incidents at once, and incidents among healthy work: SEED=1 OUT=folder
	@tools/install-deps.sh lab
	cargo build --release --locked -p mitra-lab
	$(LAB) pairs --seed $(SEED) $(OUT:%=--out %)

.PHONY: lab-drift
lab-drift: build ## settings and limits changed five minutes before they do harm, and the same with none, half an hour: SEED=1
	@tools/install-deps.sh lab
	cargo build --release --locked -p mitra-lab
	$(LAB) run drift-swappiness drift-somaxconn drift-cgroup harmless --form loud --control-seconds 60 --seed $(SEED)

.PHONY: lab-services
lab-services: build ## what keeps the clients of a service waiting on an idle machine, in both forms, and healthy services: SEED=1 OUT=folder
	@tools/install-deps.sh lab
	cargo build --release --locked -p mitra-lab
	$(LAB) run service- --seed $(SEED) $(OUT:%=--keep %)

.PHONY: lab-endure
lab-endure: build ## what the recorder itself has to live through, as root: no sample may be missing
	@tools/install-deps.sh lab
	cargo build --release --locked -p mitra-lab
	$(LAB) endure

# The last line that names an executable is the test program.
ARCHIVE_TEST = $$(cargo test --release --locked -p mitra-archive --test archive --no-run 2>&1 | tee /dev/stderr | \
	sed -n 's/.*Executable.*(\(.*\))$$/\1/p' | tail -1)
LOOM_TEST = $$(cargo test --release --locked --manifest-path crates/archive/loom/Cargo.toml --no-run 2>&1 | \
	tee /dev/stderr | sed -n 's/.*Executable.*(\(.*\))$$/\1/p' | tail -1)

.PHONY: endure
endure: build ## the archive while calls and power fail, clocks lie and months go by, as root a quarter of an hour: SEEDS= DAYS= CUTS=
	@tools/install-deps.sh endure
	tools/endure/endure.py --mitra $(MITRA) --test "$(ARCHIVE_TEST)" --loom "$(LOOM_TEST)" \
		--seeds $(SEEDS) --days $(DAYS) --cuts $(CUTS) $(README:%=--readme %)

.PHONY: lab-score
lab-score: build ## score stored results again, explained by what is built now: OUT=folder
	cargo build --release --locked -p mitra-lab
	$(LAB) score --explain $(or $(OUT),$(error OUT= names the folder of results))

.PHONY: lint
lint: ## format, clippy, who uses whom, licences and advisories, scripts; generated documents are checked by `make test`
	@tools/install-deps.sh build deny
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	tools/check-edges.py
	tools/check-supply.sh
	tools/check-scripts.sh

.PHONY: bench
bench: build ## what recording costs, beside other recorders: SECONDS=60 per recorder and scenario
	@tools/install-deps.sh bench
	cargo build --release --locked -p mitra-archive --example simulate
	@mkdir -p $(CARGO_TARGET_DIR)/bench
	TMPDIR=$(CARGO_TARGET_DIR)/bench tools/bench/bench.py --mitra $(MITRA) --seconds $(SECONDS) \
		$(SCENARIOS:%=--scenario %) --segment $(SEGMENT) \
		--simulator $(CARGO_TARGET_DIR)/release/examples/simulate \
		--json $(CARGO_TARGET_DIR)/bench/results.json

.PHONY: bench-cost
bench-cost: ## instructions of a sample in user space, counted; fails when they rise: WRITE=1 stores what is so now
	@tools/install-deps.sh cost
	cargo build --release --locked -p mitra-collect --example sampling
	tools/bench/instructions.py $(CARGO_TARGET_DIR)/release/examples/sampling $(if $(WRITE),--write)

.PHONY: bench-observer
bench-observer: build ## what being recorded costs other people's work, by the second and by the request: BLOCKS=6 of four turns, CAPTURE=kind arms a probe, PEERS=1 beside bpftrace, ONLY=redis
	@tools/install-deps.sh observer
	tools/bench/observer.py --mitra $(MITRA) $(BLOCKS:%=--blocks %) $(CAPTURE:%=--capture %) $(PEERS:1=--peers) $(ONLY:%=--only %)

.PHONY: bench-services
bench-services: build ## requests and response times as recorded, beside what load generators counted: redis-benchmark, wrk, pgbench, h2load
	@tools/install-deps.sh observer
	tools/bench/services.py --mitra $(MITRA)

.PHONY: bench-ask
bench-ask: build ## what a question costs over TCP, a Unix socket and D-Bus, and what the recorder notices of many: SECONDS=20 each
	@tools/install-deps.sh test bench
	tools/bench/ask.py --mitra $(MITRA) lab/recordings/cpu-quota.loud.101 --readme crates/app/src/commands/docs/http.md
	tools/bench/ask_load.py --mitra $(MITRA) --seconds $(if $(filter file,$(origin SECONDS)),20,$(SECONDS))

.PHONY: bench-load
bench-load: build ## mitra load beside wrk, hey, ab and vegeta: rates on nginx, and what each tells of servers whose delays are known
	@tools/install-deps.sh bench
	tools/bench/load.py --mitra $(MITRA)

.PHONY: bench-outputs
bench-outputs: build ## what sending samples costs, beside node_exporter with Prometheus as its agent, and collectd: SECONDS=60 a turn, README=docs/outputs.md writes the figures there
	@tools/install-deps.sh outputs
	@mkdir -p $(CARGO_TARGET_DIR)/bench
	TMPDIR=$(CARGO_TARGET_DIR)/bench tools/bench/outputs.py --mitra $(MITRA) --seconds $(SECONDS) $(README:%=--readme %)

.PHONY: bench-month
bench-month: build ## what mitra serve takes while its page is used on a month of 1,000 processes, which is simulated
	cargo build --release --locked -p mitra-archive --example simulate
	@mkdir -p $(CARGO_TARGET_DIR)/bench
	TMPDIR=$(CARGO_TARGET_DIR)/bench tools/bench/month.py --mitra $(MITRA) --simulator $(CARGO_TARGET_DIR)/release/examples/simulate

.PHONY: bench-files
bench-files: build ## how fast other tools' output is explained, beside awk counting its lines
	tools/bench/files.py --mitra $(MITRA)

.PHONY: bench-search
bench-search: build ## the embedded index beside OpenSearch: indexing, queries, disk, an idle indexer; needs Java and Maven
	cargo build --release --locked -p mitra-search --example search_load
	@mkdir -p $(CARGO_TARGET_DIR)/bench
	tools/bench/search.py --mitra $(MITRA) --load $(CARGO_TARGET_DIR)/release/examples/search_load \
		--json $(CARGO_TARGET_DIR)/bench/search.json

.PHONY: bench-fleet
bench-fleet: ## the day of a fleet against two nodes of OpenSearch, restarts included: HOSTS=10000 MINUTES=30, README=docs/fleet.md writes the figures there
	@tools/install-deps.sh search
	cargo build --release --locked -p mitra-search --example fleet_load
	tools/bench/fleet.py --load $(CARGO_TARGET_DIR)/release/examples/fleet_load \
		--hosts $(or $(HOSTS),10000) --minutes $(or $(MINUTES),30) $(README:%=--readme %)

.PHONY: bench-census
bench-census: ## how fast the strings of a heap of 4 GiB are counted, beside strings | sort | uniq -c: MIB=4096
	cargo build --release --locked -p mitra-inspect --example census
	@mkdir -p $(CARGO_TARGET_DIR)/bench
	TMPDIR=$(CARGO_TARGET_DIR)/bench tools/bench/census.py --mib $(or $(MIB),4096) \
		--census $(CARGO_TARGET_DIR)/release/examples/census

.PHONY: bench-look
bench-look: build ## what a service notices of being looked into, beside what it notices of any busy neighbour: BLOCKS=10
	@tools/install-deps.sh observer
	tools/bench/look.py --mitra $(MITRA) --blocks $(or $(BLOCKS),10)

.PHONY: soak
soak: build ## hours of recording beside 10,000 tasks that come and go: HOURS=4 INTERVAL_MS=1000
	tools/bench/soak.py --mitra $(MITRA) --hours $(or $(HOURS),4) --interval-ms $(or $(INTERVAL_MS),1000) \
		--json $(CARGO_TARGET_DIR)/soak.json

ARM64 := aarch64-unknown-linux-gnu

.PHONY: matrix
matrix: ## real kernels from 5.10 to the newest, amd64 and arm64, in virtual machines, as root, an hour or two: KERNELS="amd64-6.1 arm64"
	@tools/install-deps.sh matrix
	cargo build --release --locked --bin mitra --bin mitra-lab
ifneq (,$(if $(KERNELS),$(filter arm64%,$(KERNELS)),all))
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
		cargo build --release --locked --bin mitra --bin mitra-lab --target $(ARM64)
endif
	tools/matrix/matrix.py $(KERNELS) --amd64 $(CARGO_TARGET_DIR)/release --arm64 $(CARGO_TARGET_DIR)/$(ARM64)/release

.PHONY: docs
docs: ## write docs/ anew from the tables in the code
	tools/check-docs.sh --write

# Thin LTO and the instrumentation of a fuzzer do not go together. A thread that ends just when leaks are looked for has one.
FUZZ := CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true \
	cargo +nightly fuzz

.PHONY: fuzz
fuzz: ## feed garbage to everything that reads bytes: TIME=600 seconds per target, TARGET=name
	@tools/install-deps.sh fuzz
	@tools/fuzz-seeds.sh
	$(FUZZ) build mitra-fuzz
	for target in $(or $(TARGET),$$(ls fuzz/corpus)); do \
		mkdir -p fuzz/artifacts/$$target; \
		TARGET=$$target $(FUZZ) run mitra-fuzz fuzz/corpus/$$target -- -artifact_prefix=fuzz/artifacts/$$target/ \
			-max_total_time=$(TIME) -detect_leaks=0 -timeout=10 -rss_limit_mb=2048 -max_len=32768; \
	done

.PHONY: fuzz-short
fuzz-short: ## the same without an engine, other garbage each time: TIME=20 seconds per target; `make test` has five of each
	@tools/install-deps.sh build
	export FUZZ_SEED=$$RANDOM FUZZ_SECONDS=$(if $(filter file,$(origin TIME)),20,$(TIME)); \
	if [[ "$(TARGET)" != serve_http ]]; then cargo test --locked -p mitra-fuzz --lib $(TARGET) -- --nocapture; fi; \
	if [[ "$(or $(TARGET),serve_http)" = serve_http ]]; then cargo test --locked -p mitra-app --bin mitra serve_http -- --nocapture; fi

.PHONY: fuzz-reports
fuzz-reports: ## explain recordings whose numbers are spoiled, other ones each time; no report may contradict itself: TIME=600 seconds
	@tools/install-deps.sh build
	SPOIL_SECONDS=$(TIME) cargo test --release --locked -p mitra-lab --test spoiled -- --nocapture

.PHONY: miri
miri: ## unsafe code that makes no system calls, in an interpreter that knows what it may do
	@tools/install-deps.sh miri
	tools/sanitize.sh miri

.PHONY: sanitize
sanitize: ## the same, and unit tests of whatever has unsafe code or threads under the sanitizers for addresses and threads
	@tools/install-deps.sh miri
	tools/sanitize.sh miri address thread

.PHONY: install
install: build ## binary, systemd unit, man page, completions: PREFIX=/usr/local DESTDIR=
	tools/install.sh $(MITRA) "$(DESTDIR)" "$(PREFIX)" "$(UNITDIR)"

PACKAGES := $(CARGO_TARGET_DIR)/packages

.PHONY: packages
packages: ## deb, rpm, static binaries and a container image for x86-64 and arm64, checksums and SBOM, in CARGO_TARGET_DIR/packages
	@tools/install-deps.sh packages
	tools/packages/build.py $(PACKAGES)

.PHONY: test-packages
test-packages: packages ## as root: install, upgrade and remove them, run them in empty roots; REPRODUCE=1 builds them a second time elsewhere
	tools/packages/build.py $(PACKAGES)/older --version 0.0.1
	tools/packages/check.py $(PACKAGES) $(REPRODUCE:1=--reproduce)

.PHONY: release-notes
release-notes: ## what CHANGELOG.md says of the last released version
	@awk '/^## / { if (found) exit; if ($$2 != "Unreleased") found = 1 } found' CHANGELOG.md

.PHONY: clean
clean: ## remove what was built
	cargo clean
