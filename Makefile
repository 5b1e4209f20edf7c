# What a newcomer needs: `make demo`, `make install` and `make test`. Each installs what it lacks, or says what to type.

CARGO ?= cargo
BIN   := $(or $(CARGO_TARGET_DIR),target)
VENV  := .venv
# Where `make install` puts programs, completions and man pages.
PREFIX ?= $(HOME)/.local
# Generated test inputs: the same ones each time; `make test SEED=7` tries others.
SEED  ?= 1

.PHONY: demo demo-conference demo-relay demo-brokers install dist test check interop peers figures models deny clean help

help:           ## this list
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 24

demo: setup     ## three robots, an eavesdropper, an outsider, an eviction: the main job in under 30 s
	$(CARGO) build -p sealcast-cli
	$(BIN)/debug/sealcast demo lan

demo-conference: setup ## five people, a key distribution centre, and a leader that is killed, in under 30 s
	$(CARGO) build -p sealcast-cli
	$(BIN)/debug/sealcast demo conference

demo-relay: setup ## five traders at a relay that none of them trusts: it reads nothing, crashes, lies and is convicted, in under 60 s
	$(CARGO) build -p sealcast-cli -p sealcast-relayd
	$(BIN)/debug/sealcast demo relay

demo-brokers: setup ## two hospitals, an insurer and the four brokers between them, in under 60 s
	@# In two calls: with the engine's features `make demo`'s build would begin anew.
	$(CARGO) build -p sealcast-cli
	$(CARGO) build -p sealcast-brokerd-program -p sealcast-brokerd-testing --bin sealcast-broker --bin broker-testing
	$(BIN)/debug/sealcast demo brokers

PROGRAMS := sealcast sealcast-lab sealcast-broker sealcast-relay
BUILD_PROGRAMS := $(CARGO) build -p sealcast-cli -p sealcast-lab -p sealcast-brokerd-program -p sealcast-relayd $(PROGRAMS:%=--bin %)

install: setup  ## the programs, completions and man pages, under PREFIX (~/.local)
	$(BUILD_PROGRAMS) --release
	install -d $(PREFIX)/bin $(PREFIX)/share/bash-completion/completions $(PREFIX)/share/zsh/site-functions
	install -d $(PREFIX)/share/fish/vendor_completions.d $(PREFIX)/share/man/man1
	install -m 755 $(PROGRAMS:%=$(BIN)/release/%) $(PREFIX)/bin
	$(BIN)/release/sealcast completion bash > $(PREFIX)/share/bash-completion/completions/sealcast
	$(BIN)/release/sealcast completion zsh > $(PREFIX)/share/zsh/site-functions/_sealcast
	$(BIN)/release/sealcast completion fish > $(PREFIX)/share/fish/vendor_completions.d/sealcast.fish
	$(BIN)/release/sealcast man $(PREFIX)/share/man/man1
	@case ":$$PATH:" in *":$(PREFIX)/bin:"*) ;; *) echo "type: export PATH=$(PREFIX)/bin:\$$PATH" >&2 ;; esac

dist: setup     ## the programs as they are given to others, optimised across crates (slow to build)
	$(BUILD_PROGRAMS) --profile dist

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

figures: setup  ## measure every row of the figures table, quickly (about 20 minutes)
	$(CARGO) build --release -p sealcast-cli -p sealcast-lab -p sealcast-brokerd -p sealcast-brokerd-program -p sealcast-brokerd-testing -p sealcast-relayd
	$(BIN)/release/sealcast lab figures lan --quick --record docs/figures.md
	$(BIN)/release/sealcast lab figures ordered --quick --record docs/figures.md
	$(BIN)/release/sealcast lab figures brokers --quick --record docs/figures.md
	$(BIN)/release/sealcast lab figures mls --quick --record docs/figures.md

models:         ## symbolic models of invite, JOIN, ring, capture and centre
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
