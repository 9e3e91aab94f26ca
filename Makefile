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
INTERPRETED := tests/unit tests/contract $(foreach part,cli demo front_end/http node pairing security spark/jobs spark/test_streaming.py,\
    --ignore=tests/unit/$(part))

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help install up demo test test-compiled test-interpreted test-spark check format requirements bench bench-spark chaos docs screenshots clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-18s %s\n", $$1, $$2 }'

install: $(STAMPS)/package $(STAMPS)/node $(STAMPS)/browser $(STAMPS)/prometheus ## virtual environment in .venv, the package compiled into it, tools and SDKs for tests

up: $(STAMPS)/package ## a primary and a secondary namespace in the foreground, two message brokers each (UP_ARGS=...)
	@exec $(BIN)/tandembus up $(UP_ARGS)

demo: $(STAMPS)/package ## watch an outage: a primary is killed under load, and every message is accounted for; then the jobs on Spark
	@exec $(BIN)/python -m demo $(DEMO_ARGS)

test: test-compiled test-interpreted test-spark ## all tests on the compiled package, unit and contract tests interpreted, then Spark
	@$(BIN)/python tools/test_total.py $(RESULTS)/*.xml

test-compiled: install
	@rm -rf $(RESULTS)
	SCALE=$(SCALE) $(BIN)/python -m pytest $(PARALLEL) --junitxml=$(RESULTS)/compiled.xml --ignore=tests/spark \
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

check: $(STAMPS)/tools ## format, lint, strict types, import rules, requirements
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports --no-cache
	$(BIN)/python tools/check_requirements.py

format: $(STAMPS)/tools ## bring the code into the format that check asks for
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

requirements: $(STAMPS)/tools ## write the tests of each requirement into docs/requirements.md
	$(BIN)/python tools/check_requirements.py --write

bench: $(STAMPS)/package ## side by side with RabbitMQ; the table goes to benchmarks/results (BENCH_ARGS=--big adds 10 million messages)
	@tools/system_packages.sh "the comparison with RabbitMQ" rabbitmq-server -- test -x /usr/lib/rabbitmq/bin/rabbitmq-server
	$(BIN)/python -m benchmarks.run $(BENCH_ARGS)

bench-spark: $(STAMPS)/package ## source, sink and syphon on Spark; the table goes to benchmarks/results (BENCH_ARGS=--big adds a million messages)
	$(BIN)/python -m benchmarks.spark_rows $(BENCH_ARGS)

chaos: install ## the rows of the fault matrix (SCALE=ci|nightly|release)
	SCALE=$(SCALE) $(BIN)/python -m pytest -m chaos -o timeout=0 -o faulthandler_timeout=0 $(PYTEST_ARGS)

docs: $(STAMPS)/docs ## the documents as a site, in .build/site
	@rm -rf .build/docs && mkdir -p .build/docs/benchmarks
	@cp -r README.md CHANGELOG.md CONTRIBUTING.md docs .build/docs && cp -r benchmarks/results .build/docs/benchmarks
	@sed -i -E 's|\[([^]]*)\]\(\.\./tests/[^)]*\)|\1|' .build/docs/docs/requirements.md  # the site has no tests to lead to
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "the site is in .build/site"

screenshots: $(STAMPS)/docs $(STAMPS)/package $(STAMPS)/browser ## take the pictures of the dashboard in docs/images anew
	$(BIN)/python -m tools.screenshots

clean: ## remove what make made: environment, builds, caches
	rm -rf $(VENV) .build build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis $(JS)/node_modules
	find src tests tools benchmarks -name __pycache__ -prune -exec rm -rf {} +

# Stamps: each step runs again only when what it depends on has changed.

$(STAMPS)/system:
	@mkdir -p $(STAMPS)
	@tools/system_packages.sh "compiling the hot path" gcc libc6-dev python3-dev -- tools/can_compile.sh $(PYTHON)
	@touch $@

$(STAMPS)/venv: $(STAMPS)/system
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || tools/system_packages.sh "the virtual environment" python3-venv -- false
	$(PYTHON) -m venv $(VENV)
	@touch $@

# Dependencies are installed from pyproject.toml; the package itself follows, built in a copy of the sources.
$(STAMPS)/tools: pyproject.toml tools/install_dependencies.py $(STAMPS)/venv
	$(BIN)/python tools/install_dependencies.py
	@touch $@

$(STAMPS)/docs: pyproject.toml tools/install_dependencies.py $(STAMPS)/venv
	$(BIN)/python tools/install_dependencies.py docs
	@touch $@

$(STAMPS)/package: $(STAMPS)/tools setup.py tools/install_package.py $(SOURCES)
	$(BIN)/python tools/install_package.py
	@$(BIN)/python -c 'from tandembus import build; print("tandembus is installed:", build.describe())'
	@touch $@

$(STAMPS)/node: $(JS)/package.json | $(STAMPS)/system
	@tools/system_packages.sh "tests with the JavaScript SDK" nodejs npm -- sh -c 'command -v node && command -v npm'
	@if command -v npm >/dev/null; then \
	    (cd $(JS) && npm install --silent --no-fund --no-audit --no-package-lock) \
	        || echo "notice: the JavaScript SDK could not be installed: its tests are skipped"; \
	fi
	@touch $@

$(STAMPS)/browser: | $(STAMPS)/system
	@tools/system_packages.sh "reports and the dashboard in a browser" chromium fonts-dejavu-core -- \
	    sh -c 'command -v chromium || command -v chromium-browser || command -v google-chrome-stable || command -v google-chrome'
	@touch $@

$(STAMPS)/prometheus: | $(STAMPS)/system
	@tools/system_packages.sh "tests with Prometheus" prometheus -- sh -c 'command -v prometheus && command -v promtool'
	@touch $@
