# The two commands a newcomer needs: `make demo` and `make test`. Each installs what it lacks, or says what to type.

CARGO ?= cargo
BIN   := $(or $(CARGO_TARGET_DIR),target)
VENV  := .venv
# Generated test inputs: the same ones each time; `make test SEED=7` tries others.
SEED  ?= 1

.PHONY: demo demo-brokers test check interop peers figures models deny clean help

help:           ## this list
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 24

demo: setup     ## three robots, an eavesdropper, an outsider, an eviction: the main job in under 30 s
	$(CARGO) build --quiet -p sealcast-cli -p sealcast-lab
	$(BIN)/debug/sealcast demo lan

demo-brokers: setup ## two hospitals, an insurer and the four brokers between them, in under 60 s
	$(CARGO) build --quiet -p sealcast-cli -p sealcast-brokerd
	$(BIN)/debug/sealcast demo brokers

test: setup interop check   ## everything that must pass before a change lands
	@mkdir -p out && rm -f out/skipped
	PROPTEST_RNG_SEED=$(SEED) SEALCAST_SKIPPED=$(CURDIR)/out/skipped SEALCAST_PYTHON=$(CURDIR)/$(VENV)/bin/python $(CARGO) test --workspace --quiet

check: setup    ## style: formatting, lints, documentation
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet

interop: setup  ## Python lcm and cryptography in a virtual environment, for tests against other implementations
	@scripts/interop.sh $(VENV)

peers: setup    ## the systems that figures compare with
	@scripts/peers.sh

figures: setup  ## measure every row of the figures table, quickly (about 10 minutes)
	$(CARGO) build --release --quiet -p sealcast-cli -p sealcast-lab -p sealcast-brokerd
	$(BIN)/release/sealcast lab figures lan --quick
	$(BIN)/release/sealcast lab figures brokers --quick

models:         ## symbolic models of invite, JOIN, ring and capture
	@lab/models/check.sh

deny: setup     ## licences, bans and sources of all dependencies, by cargo-deny
	@$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-deny
	$(CARGO) deny check bans licenses sources

.PHONY: setup
setup:
	@scripts/setup.sh

clean:          ## remove what was built
	rm -rf out $(VENV)
	$(CARGO) clean
