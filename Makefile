# Everything a developer runs. Each target makes what it needs: a virtual environment in .venv and the packages.
VENV   ?= .venv
PYTHON ?= python3.11
BIN    := $(VENV)/bin
PLUGIN := plugins/npu
NATIVE := CMakeLists.txt $(wildcard native/src/*/* native/include/* native/include/*/*) $(shell find native/crt -type f)
# Processes that run tests: one more than processors, since some tests wait for time-outs and for other programs.
JOBS   ?= $(shell expr $$(nproc) + 1)
# Of fuzzing, for each loader.
SECONDS ?= 60
# Of mutants.
COUNT ?= 400

# Programs that tests of other processors, of instruction counts, of C projects and of damaged files run, and the Debian
# packages that have them. PoCL, for tests of OpenCL, is no program but a file among OpenCL's vendors.
TOOLS    := qemu-system-arm arm-none-eabi-gcc qemu-system-riscv32 riscv64-unknown-elf-gcc \
            qemu-aarch64 aarch64-linux-gnu-gcc arm-linux-gnueabihf-gcc riscv64-linux-gnu-gcc valgrind cmake pkg-config clang wasm-ld node ip chromium chromedriver
PACKAGES := qemu-system-arm gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-misc gcc-riscv64-unknown-elf \
            qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-arm-linux-gnueabihf libc6-dev-armhf-cross \
            gcc-riscv64-linux-gnu libc6-dev-riscv64-cross valgrind cmake pkg-config clang libclang-rt-dev lld nodejs iproute2 chromium chromium-driver pocl-opencl-icd ocl-icd-libopencl1

# Python keeps what it compiles, whatever the caller's environment says: each process that a test starts would compile the
# package again (2 s).
export PYTHONDONTWRITEBYTECODE :=

.PHONY: site demo check test test-packages test-full test-gpu test-oldest test-newest test-floors wheels test-wheels sbom licences coverage mutants lint format bench doctor bench-gpu tune-zoo soak fuzz system-packages clean help

help:
	@echo "make demo    compile a digit classifier from ONNX and classify pictures with it"
	@echo "make check   run the tests closest to what differs from HEAD, for under a minute (SINCE=main: from another revision)"
	@echo "make test    run the tests, as continuous integration does"
	@echo "make test-full  the tests with large networks, full products of parameters, all sanitizers and long fuzzers"
	@echo "make test-floors  compile a network with the oldest packages that we declare"
	@echo "make test-oldest, test-newest  demo, examples and a tenth of the tests with the oldest and newest packages that we declare"
	@echo "make wheels  build the wheels of a release in dist/: manylinux and musllinux, x86-64 and AArch64, and check them"
	@echo "make test-wheels  build them; compile and run a network with each, installed alone in an empty root"
	@echo "make sbom    write dist/tilewright.cdx.json: what pip installs with Tilewright (CycloneDX)"
	@echo "make licences  print the licences of all dependencies; fail where one is not permissive"
	@echo "make coverage  which share of branches (Python) and lines (C) make test runs, for each package"
	@echo "make mutants  which of COUNT=400 random mistakes in the compiler the tests notice (hours)"
	@echo "make site    the documents as a site in build/site, with its links checked"
	@echo "make lint    ruff and mypy"
	@echo "make format  rewrite the sources in the house format"
	@echo "make bench   latency beside ONNX Runtime and OpenVINO"
	@echo "make doctor  networks slower than ONNX Runtime or OpenVINO, and the kernels that lose most time (hours; it goes on where it ended)"
	@echo "make test-gpu  run what needs a GPU on the one that GPU=\"cuda -arch=sm_90\" names"
	@echo "make bench-gpu  kernels of a GPU beside PyTorch's; where there is none, what ptxas and a roofline say of them"
	@echo "make tune-zoo  tune common networks for this processor, and keep what is faster in the package (hours)"
	@echo "make soak    the long property tests and exhaustive numerical checks"
	@echo "make fuzz    give every loader damaged files, and models bad indices, SECONDS=60 each"
	@echo "make system-packages"
	@echo "             install what those tests need that compile for AArch64 and boards, count instructions or use OpenCL (root, Debian)"

$(BIN)/python:
	@echo "==> creating a virtual environment in $(VENV)"
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is not installed; set PYTHON=... to a Python 3.11 or newer" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml $(NATIVE) | $(BIN)/python
	@echo "==> building the native runtime and installing Tilewright (editable)"
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@touch $@

# The packages of extras of pyproject.toml, without Tilewright itself, which pip would build again.
EXTRAS := $(BIN)/python -c "import sys, tomllib; extras = tomllib.load(open('pyproject.toml', 'rb'))['project'] \
	['optional-dependencies']; print('\n'.join(package for name in sys.argv[1:] for package in extras[name]))"

$(VENV)/.lint: $(VENV)/.runtime
	@echo "==> installing ruff and mypy"
	$(EXTRAS) lint | $(BIN)/pip install --quiet --disable-pip-version-check -r /dev/stdin
	@touch $@

# Of packages with 10,000 modules some hundreds are imported: those are compiled then. (After uv: not two pips at once.)
$(VENV)/.develop: $(VENV)/.runtime | $(VENV)/.lint $(BIN)/uv
	@echo "==> installing what the tests need (PyTorch among it: set PIP_EXTRA_INDEX_URL to an index of CPU wheels to save disk)"
	$(EXTRAS) test | $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -r /dev/stdin
	@touch $@

$(VENV)/.plugin: $(VENV)/.develop $(wildcard $(PLUGIN)/*.* $(PLUGIN)/native/include/* $(PLUGIN)/native/src/*/*)
	@echo "==> building and installing the reference accelerator (editable)"
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e $(PLUGIN)
	@touch $@

$(VENV)/.bench: $(VENV)/.develop
	@echo "==> installing what the benchmarks need"
	$(EXTRAS) bench | $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -r /dev/stdin
	@touch $@

$(VENV)/.site: | $(VENV)/.lint
	@echo "==> installing what makes the site"
	$(EXTRAS) site | $(BIN)/pip install --quiet --disable-pip-version-check -r /dev/stdin
	@touch $@

site: $(VENV)/.site
	$(BIN)/mkdocs build --strict

demo: $(VENV)/.runtime
	$(BIN)/python examples/digits/demo.py

# dpkg's option: it does not wait for the disk after each of thousands of files, most of which are of C libraries.
system-packages:
	@missing=; for tool in $(TOOLS); do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	ls /etc/OpenCL/vendors/*.icd >/dev/null 2>&1 || missing="$$missing OpenCL"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "==> installing Debian packages for$$missing: $(PACKAGES)"; \
	  if said=$$({ apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	      apt-get install -qq -o Dpkg::Options::=--force-unsafe-io --no-install-recommends $(PACKAGES); } 2>&1); then exit 0; fi; \
	  echo "$$said" | tail -5 >&2; \
	fi; \
	echo "make:$$missing not installed; the tests that need them are skipped." >&2; \
	echo "      On Debian: sudo apt install $(PACKAGES)" >&2

# All that the tests need, without running them.
test-packages: system-packages $(VENV)/.plugin

check: $(VENV)/.plugin
	$(BIN)/python -m tests.selection $(if $(SINCE),--since $(SINCE)) -n $(JOBS)

# Tests are dealt to JOBS processes; one that is done takes over half of what another has left.
PYTEST := $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal
TESTS  := tests $(PLUGIN)/tests plugins/model_explorer/tests

test: test-packages
	$(PYTEST) -p tests.selection.plugin $(TESTS)

test-full: system-packages $(VENV)/.plugin
	$(PYTEST) -m "not soak" --verify all $(TESTS)

$(VENV)/.release: pyproject.toml | $(VENV)/.lint
	@echo "==> installing what releases are made and tried with"
	$(EXTRAS) release | $(BIN)/pip install --quiet --disable-pip-version-check -r /dev/stdin
	@touch $@

$(BIN)/uv: | $(VENV)/.lint
	@echo "==> installing uv"
	$(BIN)/pip install --quiet --disable-pip-version-check "uv>=0.9"

# The oldest releases, packages and Python, that pyproject.toml allows, and the newest: see docs/testing.md.
OLDEST_PYTHON ?= 3.11
NEWEST_PYTHON ?= 3.13
VERSIONS := PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python packaging/versions.py

test-oldest: | $(BIN)/uv
	$(VERSIONS) oldest --python $(OLDEST_PYTHON)

test-newest: | $(BIN)/uv
	$(VERSIONS) newest --python $(NEWEST_PYTHON)

# A network with the oldest releases, in seconds: continuous integration runs it.
test-floors: $(VENV)/.runtime | $(BIN)/uv
	TILEWRIGHT_RUNTIME_LIBRARY=$$($(BIN)/python -c "import tilewright.runtime._ffi as f; print(f.find_library())") \
	  $(VERSIONS) oldest --python $(OLDEST_PYTHON) --smoke

# Each wheel's C is compiled by ziglang; see docs/deployment.md, "Wheels".
wheels: $(VENV)/.runtime $(VENV)/.release | $(BIN)/uv
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python packaging/wheels.py

# Each wheel is installed alone, without a compiler, and compiles and runs a network.
test-wheels: wheels
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python packaging/try_wheels.py --rebuild

# What "pip install tilewright" brings, by CycloneDX; and whether its licences are permissive.
sbom: $(VENV)/.release | $(BIN)/uv
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python packaging/sbom.py

licences: $(VENV)/.develop
	$(BIN)/python packaging/licences.py --extras

coverage: system-packages $(VENV)/.plugin
	$(BIN)/python -m tests.coverage -n $(JOBS) $(TESTS)

mutants: system-packages $(VENV)/.plugin
	$(BIN)/python -m tests.mutation --count $(COUNT)
	$(BIN)/python -m tests.mutation --count $(COUNT) --tier full
	$(BIN)/python -m tests.mutation --report

lint: $(VENV)/.lint
	$(BIN)/ruff check src tests examples benchmarks plugins
	$(BIN)/ruff format --check src tests examples benchmarks plugins
	$(BIN)/mypy

format: $(VENV)/.lint
	$(BIN)/ruff check --fix src tests examples benchmarks plugins
	$(BIN)/ruff format src tests examples benchmarks plugins

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks.latency --threads 2

# pip builds llama.cpp from source, for this processor: some 20 minutes of one core.
$(VENV)/.bench-llama: $(VENV)/.bench
	@echo "==> building llama-cpp-python, which benchmarks.decoding --llama runs"
	$(EXTRAS) bench-llama | CMAKE_ARGS="-DGGML_NATIVE=ON" $(BIN)/pip install --quiet --disable-pip-version-check -r /dev/stdin
	@touch $@

# torchvision's wheel asks for a CUDA build of torch, which it can do without.
$(VENV)/.models: $(VENV)/.bench
	@echo "==> installing torchvision and transformers, whose networks the doctor looks at"
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --no-deps "torchvision>=0.28"
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile "transformers>=5"
	@touch $@

doctor: $(VENV)/.models
	$(BIN)/python -m benchmarks.doctor --threads 1

# GPU names a target, such as "cuda -arch=sm_90"; without one, tests run on OpenCL.
GPU       ?= opencl
GPU_TESTS := tests/nvidia_gpu tests/topi/test_gpu_operators.py tests/topi/gpu tests/topi/test_dynamic_sorting.py \
             tests/relay/backend/test_gpu_networks.py tests/relay/backend/test_control_on_devices.py \
             tests/relay/backend/test_findings_on_devices.py tests/relay/backend/test_vm_regions.py \
             tests/relay/backend/test_vm_specialize.py tests/target/test_codegen_ptx.py tests/auto_scheduler/test_gpu.py \
             tests/models/test_networks_on_gpu.py

test-gpu: $(VENV)/.develop
	TILEWRIGHT_TEST_GPU="$(GPU)" $(PYTEST) -p tests.gpu -m "" $(GPU_TESTS)

bench-gpu: $(VENV)/.develop
	$(BIN)/python -m benchmarks.gpu --networks

tune-zoo: $(VENV)/.bench
	$(BIN)/python -m benchmarks.tune_zoo

soak: system-packages $(VENV)/.plugin
	$(PYTEST) -m soak $(TESTS)

fuzz: system-packages $(VENV)/.develop
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

clean:
	rm -rf build $(VENV) .pytest_cache .mypy_cache .ruff_cache
