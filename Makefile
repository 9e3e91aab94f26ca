# `make` alone lists the targets.
PYTHON ?= python3
SCALE ?= ci
PYTEST_ARGS ?=
# Tests with real clients wait for them most of the time (27 of 249 s were work in one such file): six files at once keep
# two processors busy. What follows from one file stays in one process, so that namespaces and module fixtures are started
# once. The order is that of tests/conftest.py.
WORKERS ?= 6
BY_FILE := --dist loadfile --no-loadscope-reorder --max-worker-restart 0
PARALLEL := -n $(WORKERS) $(BY_FILE)
VENV := .venv
BIN := $(VENV)/bin
STAMPS := .build/stamps
RESULTS := .build/test-results
JS := tests/integration/js
SOURCES := $(shell find src -name '*.py' -o -name py.typed -o -name '*.toml' -o -name '*.css' -o -name '*.html' \
	-o -name '*.js' -o -name '*.svg' -o -name '*.ico' -o -name '*.json' 2>/dev/null)
# The interpreted session repeats the tests that exercise the compiled modules themselves; the rest of the code is the
# same text in both sessions, and the tests of that alone are left out.
# Their own runners run these tests: `make test-sdks`.
FOREIGN := tests/sdk/java tests/sdk/go tests/sdk/rust tests/sdk/celery
INTERPRETED := tests/unit tests/contract $(foreach part,cli demo front_end/http node pairing security spark/jobs spark/test_streaming.py,\
    --ignore=tests/unit/$(part))

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help install up wheels deb first-message demo test test-compiled test-interpreted test-spark test-sdks java check format walk requirements bench bench-spark chaos docs screenshots \
    clean compiler proton nodejs node browser prometheus curl

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-18s %s\n", $$1, $$2 }'

install: $(STAMPS)/package $(STAMPS)/spark proton node browser prometheus curl ## virtual environment in .venv, the package compiled into it, tools and SDKs for tests

up: $(STAMPS)/runtime ## a primary and a secondary namespace in the foreground, two message brokers each (UP_ARGS=...)
	@$(BIN)/python -m tools.install_package --at-once
	@exec $(BIN)/tandembus up $(UP_ARGS)

demo: $(STAMPS)/runtime $(STAMPS)/spark ## watch an outage: a primary is killed under load, and every message is accounted for; then the jobs on Spark
	@$(BIN)/python -m tools.install_package --at-once
	@exec $(BIN)/python -m demo $(DEMO_ARGS)

test: test-compiled test-interpreted test-spark ## all tests on the compiled package, unit and contract tests interpreted, then Spark
	@$(BIN)/python tools/test_total.py $(RESULTS)/*.xml

test-compiled: install
	@rm -rf $(RESULTS)
	SCALE=$(SCALE) $(BIN)/python -m pytest $(PARALLEL) --junitxml=$(RESULTS)/compiled.xml --ignore=tests/spark \
	    $(FOREIGN:%=--ignore=%) \
	    $(PYTEST_ARGS) \
	    || SCALE=$(SCALE) $(BIN)/python tools/second_try.py $(RESULTS)/compiled.xml

test-interpreted: install
	PYTHONPATH=src SCALE=$(SCALE) $(BIN)/python -m pytest $(PARALLEL) --junitxml=$(RESULTS)/interpreted.xml \
	    $(INTERPRETED) $(PYTEST_ARGS) \
	    || PYTHONPATH=src SCALE=$(SCALE) $(BIN)/python tools/second_try.py $(RESULTS)/interpreted.xml

# Two processes: one has the Spark session that most tests share, the other the tests that start Spark themselves and wait
# for it. The order is that of tests/spark/conftest.py.
test-spark: install
	@mkdir -p $(RESULTS)
	@$(BIN)/python -c "from tests.spark.starting import keep_classes; keep_classes()" 2>$(RESULTS)/java.log \
	    || echo "notice: Java starts slowly, without an archive of its classes: see $(RESULTS)/java.log"
	SCALE=$(SCALE) $(BIN)/python -m pytest tests/spark -n 2 $(BY_FILE) \
	    --junitxml=$(RESULTS)/spark.xml $(PYTEST_ARGS) \
	    || SCALE=$(SCALE) $(BIN)/python tools/second_try.py $(RESULTS)/spark.xml

# Compilers take minutes: the limits of single tests do not hold here.
test-sdks: $(STAMPS)/package java ## tests with the SDKs of other languages, as far as their tool chains are there
	@mkdir -p $(RESULTS)
	$(BIN)/python -m pytest $(FOREIGN) -n 2 $(BY_FILE) -o faulthandler_timeout=0 --junitxml=$(RESULTS)/sdks.xml $(PYTEST_ARGS) \
	    || $(BIN)/python tools/second_try.py $(RESULTS)/sdks.xml -o faulthandler_timeout=0

java:
	@tools/system_packages.sh "tests with the Java SDK" default-jdk-headless maven -- sh -c 'command -v javac && command -v mvn'

check: $(STAMPS)/tools ## format, lint, strict types, import rules, requirements
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports --no-cache
	$(BIN)/python tools/check_requirements.py
	$(BIN)/python tools/sdk_calls.py
	$(BIN)/python tools/check_shape.py

format: $(STAMPS)/tools ## bring the code into the format that check asks for
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

walk: $(STAMPS)/tools ## the functions that one send, one receive and one complete pass, in one process and across processes
	@PYTHONPATH=src $(BIN)/python -m tools.walk

requirements: $(STAMPS)/tools ## list the tests of each requirement in .build/requirements.md
	$(BIN)/python tools/check_requirements.py --write

bench: $(STAMPS)/package ## side by side with RabbitMQ; the table goes to benchmarks/results (BENCH_ARGS=--big adds 10 million messages)
	@tools/system_packages.sh "the comparison with RabbitMQ" rabbitmq-server -- test -x /usr/lib/rabbitmq/bin/rabbitmq-server
	$(BIN)/python -m benchmarks.run $(BENCH_ARGS)

bench-spark: $(STAMPS)/package $(STAMPS)/spark ## source, sink and syphon on Spark; the table goes to benchmarks/results (BENCH_ARGS=--big adds a million messages)
	$(BIN)/python -m benchmarks.spark_rows $(BENCH_ARGS)

chaos: install ## the rows of the fault matrix (SCALE=ci|nightly|release)
	SCALE=$(SCALE) $(BIN)/python -m pytest -m chaos -o timeout=0 -o faulthandler_timeout=0 $(PYTEST_ARGS)

docs: $(STAMPS)/docs ## the documents as a site, in .build/site
	@rm -rf .build/docs && mkdir -p .build/docs/benchmarks
	@cp -r README.md CHANGELOG.md CONTRIBUTING.md docs .build/docs && cp -r benchmarks/results .build/docs/benchmarks
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "the site is in .build/site"

wheels: $(STAMPS)/wheels ## the wheels of a release in dist, each installed in an empty environment up to a first message
	@$(BIN)/python -m tools.wheels try

deb: $(STAMPS)/wheels ## a Debian package in dist, for the Debian whose Python runs this
	@tools/deb.sh $(BIN)/python

first-message: deb ## from nothing to the first message in every way, each on a new Debian: a table (as root, with debootstrap)
	@tools/fresh_machine.sh first

screenshots: $(STAMPS)/docs $(STAMPS)/package browser ## take the pictures in docs/images again: of the dashboard, and of the demo
	$(BIN)/python -m tools.screenshots
	$(BIN)/python -m tools.record_demo

clean: ## remove what make made: environment, builds, caches
	rm -rf $(VENV) .build build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis $(JS)/node_modules
	find src tests tools benchmarks -name __pycache__ -prune -exec rm -rf {} +

# Stamps: each step runs again only when what it depends on has changed. A step that failed leaves none, so it is tried
# again the next time. Packages of the system are looked for each time, and have no stamps.

$(STAMPS)/venv:
	@mkdir -p $(STAMPS)
	@$(PYTHON) tools/check_python.py
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || tools/system_packages.sh "the virtual environment" python3-venv -- false
	$(PYTHON) -m venv $(VENV)
	@touch $@

# Dependencies are installed from pyproject.toml; the package itself follows, built in a copy of the sources.
INSTALL_DEPENDENCIES = $(BIN)/python -m tools.install_dependencies

$(STAMPS)/runtime: pyproject.toml tools/install_dependencies.py $(STAMPS)/venv
	@$(INSTALL_DEPENDENCIES) runtime
	@touch $@

$(STAMPS)/tools: $(STAMPS)/runtime
	@$(INSTALL_DEPENDENCIES) build tests otel check
	@touch $@

$(STAMPS)/spark: $(STAMPS)/runtime
	@$(INSTALL_DEPENDENCIES) spark
	@touch $@

$(STAMPS)/docs: $(STAMPS)/runtime
	@$(INSTALL_DEPENDENCIES) docs
	@touch $@

$(STAMPS)/package: $(STAMPS)/tools setup.py tools/install_package.py $(SOURCES) | compiler
	@$(BIN)/python -m tools.install_package
	@$(BIN)/python -c 'from tandembus import build; print("tandembus is installed:", build.describe())'
	@touch $@

$(STAMPS)/wheels: $(STAMPS)/package tools/wheels.py
	@$(INSTALL_DEPENDENCIES) wheels
	@$(BIN)/python -m tools.wheels build
	@touch $@

compiler:
	@tools/system_packages.sh "compiling the hot path" gcc libc6-dev python3-dev -- tools/can_compile.sh $(PYTHON)

# It comes as C source, and knows TLS where OpenSSL's headers are found; everything else works without it.
proton: $(STAMPS)/tools | compiler
	@tools/system_packages.sh "qpid-proton with TLS" pkg-config libssl-dev -- pkg-config --exists openssl
	@test -e $(STAMPS)/proton || { tools/can_compile.sh $(PYTHON) && $(INSTALL_DEPENDENCIES) proton && touch $(STAMPS)/proton; } \
	    || echo "notice: qpid-proton could not be built here: its tests are skipped"

nodejs:
	@tools/system_packages.sh "tests with the JavaScript SDK" nodejs npm -- sh -c 'command -v node && command -v npm'

node: nodejs
	@mkdir -p $(STAMPS)
	@test $(STAMPS)/node -nt $(JS)/package-lock.json || ! command -v npm >/dev/null \
	    || { echo "installing the JavaScript SDK" && (cd $(JS) && npm ci --silent --no-fund --no-audit) && touch $(STAMPS)/node; } \
	    || echo "notice: the JavaScript SDK could not be installed: its tests are skipped"

browser:
	@tools/system_packages.sh "reports and the dashboard in a browser" chromium fonts-dejavu-core -- \
	    sh -c 'command -v chromium || command -v chromium-browser || command -v google-chrome-stable || command -v google-chrome'

prometheus:
	@tools/system_packages.sh "tests with Prometheus" prometheus -- sh -c 'command -v prometheus && command -v promtool'

curl:
	@tools/system_packages.sh "the commands of the documents" curl -- sh -c 'command -v curl'
