# The commands of this project. `make help` lists them; README.md says what they give you.
#
# Set-up is checked on every run and is quick when nothing is missing: packages by asking dpkg, the Python environment
# by a stamp that carries the hash of what it is made from, Rust by cargo.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# Where the programs under test are, also for the tests and for rocelab itself.
export CARGO_TARGET_DIR ?= $(CURDIR)/nic/target
RELEASE := $(CARGO_TARGET_DIR)/release
export PATH := $(RELEASE):$(PATH)

CARGO := cargo
NIC := --manifest-path nic/Cargo.toml --locked
PY := .venv/bin/python

PYTHON_INPUTS := requirements.lock pyproject.toml scripts/setup_python
PYTHON_STAMP := .venv/.made-from-$(shell cat $(PYTHON_INPUTS) 2>/dev/null | sha256sum | cut -c1-16)

C_SOURCES = $(shell git ls-files '*.c' '*.h')
# Those that cargo does, and the others.
LINTS_OF_NIC := lint-fmt lint-clippy docs
LINTS := $(LINTS_OF_NIC) lint-crates lint-ruff lint-mypy lint-imports lint-shell lint-c lint-tree
SHELL_SCRIPTS := .ci/run packaging/install_rocelab_programs packaging/install_urxe nic/conformance/rxe/init scripts/reproducibly scripts/setup_cloud scripts/setup_more_programs scripts/setup_packages scripts/setup_programs scripts/setup_python scripts/setup_rust scripts/unpack_packages nic/conformance/userland/enter

##@ The two commands

.PHONY: eval
eval: setup-python build ## Set up, compare Soft RoCE with TCP on this machine, write a report; MINUTES=15 for more certainty
	.venv/bin/rocelab run studies/quick.toml \
	    $(if $(MINUTES),--minutes $(MINUTES)) $(if $(REPETITIONS),--repetitions $(REPETITIONS))

.PHONY: test
test: setup build ## Set up, then run every test; closes on one line over all of them
	$(PY) scripts/run_tests.py $(if $(MUTANTS),--mutants $(MUTANTS))

##@ Develop

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' \
	    '/^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' \
	    $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: setup-packages setup-python setup-rust setup-programs setup-cloud setup-distros ## Install what is missing: Debian packages, Python, Rust, jars

.PHONY: build
build: build-nic build-bench ## Build urxe, liburxe.so and the C benchmarks

.PHONY: build-nic build-bench
build-nic: setup-rust ## Build urxe and liburxe.so alone
	$(CARGO) build $(NIC) --release

build-bench: setup-packages ## Build the C benchmarks alone
	$(MAKE) --no-print-directory --jobs=$(shell nproc) -C bench

.PHONY: test-rust
test-rust: setup build ## Run the Rust tests alone
	$(PY) scripts/run_tests.py rust

.PHONY: test-python
test-python: setup build ## Run the Python tests alone
	$(PY) scripts/run_tests.py python commands programs

.PHONY: test-quiet
test-quiet: setup build ## Run the tests of real time, which need a quiet machine
	$(PY) scripts/run_tests.py quiet

PREFIX := /usr/local
.PHONY: install
install: ## Install urxe, which `make build` has built, with its library, manual pages and completions: PREFIX=/usr/local DESTDIR=
	packaging/install_urxe $(RELEASE) $(DESTDIR)$(PREFIX)

# The programs are built for glibc 2.28 by zig, whatever this machine has. debhelper is asked for only here.
PACKAGING := .build/packaging/bin/python
$(PACKAGING): packaging/tools.lock | setup-packages
	python3 -m venv --clear .build/packaging
	$@ -m pip --disable-pip-version-check --quiet install --no-deps --require-hashes --requirement packaging/tools.lock
	touch $@

.PHONY: packages
packages: setup-rust $(PACKAGING) ## Build wheels, Debian packages and an image into .build/packages; PARTS='wheels debs image aarch64 again', PYTHONS='3.13' for these alone
	scripts/setup_packages packages
	$(PACKAGING) packaging/build.py $(PARTS)

# Each way to get rocelab, on each release, in a system with nothing but what docs/install.md names.
.PHONY: test-packages
test-packages: setup ## Install what `make packages` has built in fresh systems, and as an image, and use it; ARGS='-k trixie' picks some
	.venv/bin/pytest -p no:cacheprovider packaging/tests/fresh_systems.py packaging/tests/ci_snippets.py $(ARGS)

# What takes hours together. Each part says how it ended; the first that fails ends it, unless make is told to keep going.
# Packages are built first, and tried in fresh systems: no other part does that.
.PHONY: test-all
test-all: setup build ## Run every test that there is, also those that take long: some hours, nightly
	$(PY) scripts/run_tests.py nightly
	$(MAKE) --no-print-directory test-quiet test-distros test-many test-programs test-arm64
	$(MAKE) --no-print-directory packages PARTS='wheels debs image aarch64 again'
	$(MAKE) --no-print-directory test-packages

# `make test` runs a few programs of each distribution; here it is the whole matrix, and a libibverbs with verbs that nobody has.
# pytest ends with 5 where ARGS picks none.
DISTROS := trixie sid
# Releases of urxe on the wire with this one are part of it, too.
.PHONY: test-distros
test-distros: setup build setup-releases ## Run the programs and verbs of newer Debians on urxe, and old urxe with new; ARGS='-k rping' picks some
	status=0; \
	for each in $(DISTROS); do \
	    .venv/bin/pytest -p no:cacheprovider --distro $$each nic/conformance/programs/test_matrix.py::test_program $(ARGS) || [ $$? -eq 5 ] || status=1; \
	done; \
	.venv/bin/pytest -p no:cacheprovider nic/conformance/userland nic/conformance/userland/new_verb.py $(ARGS) || [ $$? -eq 5 ] || status=1; \
	.venv/bin/pytest -p no:cacheprovider nic/conformance/releases/old_with_new.py $(ARGS) || [ $$? -eq 5 ] || status=1; \
	exit $$status

# A machine of two cores takes some minutes for it, and needs root for its sshd.
.PHONY: test-many
test-many: setup build ## Reach, ask and measure 64 hosts, which are nodes of an emulated fabric with sshd
	.venv/bin/pytest -p no:cacheprovider -s rocelab/hosts/tests/many.py

# Examples of crates, which take minutes to build, and Debian's packages that bring much with them.
.PHONY: test-programs
test-programs: setup build ## Run programs that take long to set up (Rust's crates for RDMA, Ceph, fio, PyTorch, Gloo) on urxe; ARGS='-k sideway' picks some
	@scripts/setup_more_programs .build/programs
	.venv/bin/pytest -p no:cacheprovider nic/conformance/programs/more.py $(ARGS)

# What is written in assembly has tests that need no sockets, which qemu-user does not have all of.
ARM64 := aarch64-unknown-linux-gnu
.PHONY: test-arm64
test-arm64: setup-rust ## Run the tests of accesses to memory that is gone on 64-bit ARM, in qemu-user
	rustup target list --installed | grep --quiet --line-regexp $(ARM64) || rustup target add $(ARM64)
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER='qemu-aarch64 -L /usr/aarch64-linux-gnu' \
	    $(CARGO) test $(NIC) --target $(ARM64) -p urxe-device --lib guard
	$(CARGO) check $(NIC) --target $(ARM64) -p urxe-preload -p urxe-cli

# The simulator's tests are the same in every build; optimised, they get through many more seeds.
.PHONY: sim
sim: setup-rust ## Run the simulator's tests, optimised; SEEDS=100000 for that many random programs in each
	$(if $(SEEDS),URXE_SIM_SEEDS=$(SEEDS)) $(CARGO) test $(NIC) --release -p urxe-sim -p urxe-iwarp

.PHONY: mutants
mutants: setup-rust setup-python ## Break the NIC in known ways and see that its tests notice; DRAW=5 for some, drawn by the commit
	$(PY) scripts/mutants.py $(if $(DRAW),--draw $(DRAW))

.PHONY: bench
bench: setup-python setup-programs build ## Hold Soft RoCE against its bars: each ratio to TCP, with its spread (a quiet machine is needed)
	.venv/bin/rocelab run studies/bars.toml
	.venv/bin/rocelab bars
	$(PY) scripts/limits.py
	$(CARGO) build $(NIC) --release -p urxe-udp --examples
	$(PY) scripts/sharing.py

.PHONY: tables
tables: setup-python ## Make the tables of the documents again, from the samples in docs/data and from nic/conformance/promises
	$(PY) scripts/doc_tables.py
	$(PY) scripts/promises.py

# What building would otherwise need headers and libclang for. A test holds them to the installed headers.
.PHONY: bindings
bindings: setup-rust ## Make the bindings of nic/preload from the installed headers again (rdma-core 44, Debian 12)
	URXE_WRITE_BINDINGS=1 $(CARGO) test $(NIC) -p urxe-preload --test bindings

# The floor under the NIC: system calls, UDP ping-pong and streams over a veth pair. Wants a quiet machine.
.PHONY: floor
floor: setup-rust ## Measure what the machine's UDP can do, which bounds the NIC (a quiet machine is needed)
	$(CARGO) build $(NIC) --release -p urxe-udp --examples
	for each in cost pingpong exchange stream bulk; do $(RELEASE)/examples/udp_$$each --link veth; done

# cargo-fuzz asks for a nightly compiler, for its -Z flags alone. RUSTC_BOOTSTRAP lets the stable one take them, so that what
# is fuzzed is built by the compiler that builds everything else. It starts from nic/inputs/corpus, which every `make test`
# replays; what it finds goes to nic/fuzz/corpus, and what breaks a promise to nic/fuzz/artifacts. The calls of C programs and
# the study files are drawn by a seed, as many as take about as long: coverage of a preloaded library, or of Python, would cost more.
FUZZ_TARGETS := packet queue_pair cm mpa ddp rdmap connection
CARGO_FUZZ := $(CARGO_TARGET_DIR)/tools/bin/cargo-fuzz
SECONDS_EACH := 60
.PHONY: fuzz
fuzz: setup-rust setup-python | $(CARGO_FUZZ) ## Throw packets, messages, calls and studies at whatever takes them, SECONDS_EACH=60
	for each in $(FUZZ_TARGETS); do \
	    mkdir -p nic/fuzz/corpus/$$each; \
	    RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/fuzz \
	    $(CARGO_FUZZ) fuzz run --fuzz-dir nic/fuzz $$each nic/fuzz/corpus/$$each nic/inputs/corpus/$$each -- -max_total_time=$(SECONDS_EACH) -max_len=8192; \
	done
	URXE_RANDOM_CALLS=$$((40 * $(SECONDS_EACH))) $(CARGO) test $(NIC) -p urxe-preload --test abi calls_at_random -- --nocapture
	ROCELAB_RANDOM_STUDIES=$$((5 * $(SECONDS_EACH))) $(PY) -m pytest -q -p no:cacheprovider --timeout 0 rocelab/study/tests/test_hostile.py

$(CARGO_FUZZ): | setup-rust
	$(CARGO) install --quiet --locked --root $(CARGO_TARGET_DIR)/tools cargo-fuzz

# Both of two cores are busy for all of it. MPI takes part once `make setup-programs` has fetched it. Connections of iWARP
# devices come and go for a tenth of the time first.
.PHONY: soak
soak: MINUTES ?= 30
soak: setup build ## Run programs while all goes wrong that can: loss, dead links and peers, MINUTES=30
	URXE_CHURN_SECONDS=$$(awk 'BEGIN { print int(6 * $(MINUTES)) }') $(CARGO) test $(NIC) --release -p urxe-device --test iwarp_churn -- --nocapture
	cd nic/conformance && ../../$(PY) -m soak --minutes $(MINUTES) --json ../../.build/soak.json

# Linux rxe runs on kernels of its own, in QEMU, on a link that a network namespace of its own has the other end of.
# Without KVM this takes half an hour. ARGS='-k rping' picks some.
INTEROP := $(addprefix nic/conformance/rxe/,sysfs.py interop.py newer.py siw.py within.py speed.py hosts.py)
IN_A_NAMESPACE := unshare --map-root-user --net
.PHONY: interop
interop: setup build ## Run programs between urxe and Linux rxe, of three kernels, and siw, and compare their speed
	cd nic/conformance && ../../$(PY) -m rxe
	$(IN_A_NAMESPACE) .venv/bin/pytest -p no:cacheprovider $(INTEROP) $(ARGS)

.PHONY: lint lint-nic lint-rest
lint: $(LINTS) ## Run every linter and the import-direction checks (make -k: do not stop at the first)

lint-nic: $(LINTS_OF_NIC) ## Run the linters of cargo alone

lint-rest: $(filter-out $(LINTS_OF_NIC),$(LINTS)) ## Run the other linters alone

.PHONY: format
format: setup-python ## Format Rust, Python and C in place
	$(CARGO) fmt --manifest-path nic/Cargo.toml --all
	$(CARGO) fmt --manifest-path nic/fuzz/Cargo.toml
	.venv/bin/ruff check --select I --fix --quiet
	.venv/bin/ruff format
	$(if $(C_SOURCES),.venv/bin/clang-format -i $(C_SOURCES))

# The readers are those who work on it, so private items are in, and links to them are fine.
.PHONY: docs
docs: setup-rust ## Build the documentation of the Rust crates; a broken link is an error
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" \
	    $(CARGO) doc $(NIC) --workspace --no-deps --document-private-items
	@echo "See $(CARGO_TARGET_DIR)/doc/urxe_proto/index.html"

# It can be read from disk; nothing of it comes from elsewhere.
.PHONY: site
site: setup-python ## Build the documents as a site, with search, in .build/site; a broken link is an error
	$(PY) scripts/site_pages.py

.PHONY: lock
lock: setup-python ## Bring requirements.lock up to date with pyproject.toml
	CUSTOM_COMPILE_COMMAND='make lock' .venv/bin/pip-compile --quiet --resolver backtracking --extra dev \
	    --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	    --output-file requirements.lock pyproject.toml
	for each in nic/conformance/programs/{mpich,openmpi} packaging/tools scripts/sbom; do \
	    CUSTOM_COMPILE_COMMAND='make lock' .venv/bin/pip-compile --quiet --resolver backtracking --generate-hashes \
	        --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	        --output-file $$each.lock $$each.in; \
	done

# With low priority: this takes a quarter of an hour, and more where something else goes on.
.PHONY: reproducible
reproducible: setup-rust setup-python ## Build urxe and liburxe.so twice in different places, and see that they are the same
	$(PY) scripts/reproducible.py

# The tools are pinned: one here, the other with all that it needs in scripts/sbom.lock.
CARGO_CYCLONEDX_VERSION := 0.5.9
CARGO_CYCLONEDX := $(CARGO_TARGET_DIR)/tools/cargo-cyclonedx-$(CARGO_CYCLONEDX_VERSION)/bin/cargo-cyclonedx
CYCLONEDX_PY := .build/sbom/bin/cyclonedx-py
.PHONY: sbom
sbom: setup-rust setup-python $(CYCLONEDX_PY) | $(CARGO_CYCLONEDX) ## Write what the programs are made of (CycloneDX) into .build/packages
	$(PY) scripts/sbom.py .build/packages --cargo-cyclonedx $(CARGO_CYCLONEDX) --python $(dir $(CYCLONEDX_PY))python

$(CARGO_CYCLONEDX): | setup-rust
	$(CARGO) install --quiet --locked --root $(CARGO_TARGET_DIR)/tools/cargo-cyclonedx-$(CARGO_CYCLONEDX_VERSION) \
	    --version $(CARGO_CYCLONEDX_VERSION) cargo-cyclonedx

$(CYCLONEDX_PY): scripts/sbom.lock | setup-packages
	python3 -m venv --clear .build/sbom
	.build/sbom/bin/python -m pip install --quiet --require-hashes --requirement scripts/sbom.lock
	touch $@

.PHONY: clean
clean: ## Remove what was built; .venv and results stay
	$(CARGO) clean $(NIC)
	$(MAKE) --no-print-directory -C bench clean
	rm -rf .build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find rocelab scripts -name __pycache__ -type d -prune -exec rm -rf {} +

# The parts of set-up. Only those who test or lint get the packages that no benchmark needs (a browser).
PURPOSE := $(if $(filter test-arm64,$(MAKECMDGOALS)),arm64,$(if $(filter setup test% lint% fuzz interop setup-cloud setup-distros setup-releases,$(MAKECMDGOALS)),test,run))

.PHONY: setup-packages setup-python setup-rust setup-programs setup-cloud setup-distros setup-releases
setup-packages:
	@scripts/setup_packages $(PURPOSE)

setup-python: $(PYTHON_STAMP) ## Install rocelab alone, with what it needs to run

# The packages come first: python3-venv is one of them.
$(PYTHON_STAMP): | setup-packages
	@scripts/setup_python $@

setup-rust: setup-packages
	@scripts/setup_rust

# Open MPI and MPICH, which studies of MPI run as well, and pyverbs, which only tests do; each in a folder of its own.
setup-programs: setup-packages
	@scripts/setup_programs .build/programs

# HDFS, HBase and Spark, which studies of the level cloud run. A change in cloud/ builds them anew.
setup-cloud: setup-packages ## Install HDFS, HBase and Spark with what measures them (Maven Central)
	@scripts/setup_cloud .build/programs/cloud .build/maven

# Where they cannot be made, what needs them is skipped with the reason; those who ask for them are told by a failure.
setup-distros: setup-packages ## Unpack userlands of newer Debians, for tests
	@python3 nic/conformance/userland/roots.py $(if $(filter setup-distros test-distros,$(MAKECMDGOALS)),--must)

# Nothing of a release can be downloaded: each is built once, from the history of this clone.
setup-releases: setup-rust ## Build urxe as its releases have it, for tests
	@python3 nic/conformance/releases/builds.py

.PHONY: $(filter lint-%,$(LINTS))
lint-fmt: setup-rust
	$(CARGO) fmt --manifest-path nic/Cargo.toml --all --check
	$(CARGO) fmt --manifest-path nic/fuzz/Cargo.toml --check

lint-clippy: setup-rust
	$(CARGO) clippy $(NIC) --workspace --all-targets -- -D warnings
	$(CARGO) clippy --manifest-path nic/fuzz/Cargo.toml --locked -- -D warnings

lint-crates: setup-rust setup-python
	$(PY) scripts/check_imports.py

lint-ruff: setup-python
	.venv/bin/ruff check
	.venv/bin/ruff format --check

lint-mypy: setup-python
	.venv/bin/mypy
	.venv/bin/mypy --strict scripts
	.venv/bin/mypy --strict nic/conformance/programs
	.venv/bin/mypy --strict nic/conformance/releases
	.venv/bin/mypy --strict nic/conformance/rxe
	.venv/bin/mypy --strict nic/conformance/soak
	.venv/bin/mypy --strict nic/conformance/userland
	.venv/bin/mypy --strict bench/tests

lint-imports: setup-python
	.venv/bin/lint-imports

lint-shell: setup-packages
	shellcheck $(SHELL_SCRIPTS)

lint-c: setup-python
	$(if $(C_SOURCES),.venv/bin/clang-format --dry-run -Werror $(C_SOURCES))

lint-tree: setup-python
	$(PY) scripts/check_tree.py
