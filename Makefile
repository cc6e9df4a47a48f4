# Every target installs what it misses and builds what has changed: there is no set-up step.
# The work is done by tools/*.sh; docs and options are at the top of each.

VENV := .venv/bin
RANKS ?= 2
# One compute thread per rank, else the ranks of one machine fight for its cores.
export OMP_NUM_THREADS ?= 1
# Tests start many interpreters, each of which would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

CPP_FILES = find csrc tests benchmarks -name '*.h' -o -name '*.cc' -o -name '*.cu'

.DEFAULT_GOAL := help
.PHONY: help demo examples check test test-cpp test-python test-tools test-status test-metrics attacks relay soak bench bench-net bench-choice bench-ddp bench-critics bench-recovery bench-horovod compression-study conformance differential matrix membership-sim chaos horovod horovod-random build cuda wheel docs lint call-path format sanitize fuzz clean

help:
	@echo 'torch-ringdist: start with `make demo`.'
	@echo
	@echo '  make demo         train a small network on handwritten digits, 2 ranks (RANKS=4: four)'
	@echo '  make examples     FSDP2, tensor parallel and pipeline parallel training, each checked; 2 ranks'
	@echo '  make check        before each commit: lint, the unit tests, one test of each kind; 2 minutes'
	@echo '  make test         all tests of the product: test-cpp, then test-python; 20 minutes on two cores'
	@echo '  make soak         the long random checks, one after the other; a night (ARGS="kills chaos": these)'
	@echo '  make test-cpp     the C++ tests; one of them: build/release/out/base_test --gtest_filter=...'
	@echo '  make test-python  the Python tests; one of them: .venv/bin/python -m pytest -k ...'
	@echo '  make test-status  what `ringdist status` finds on two hosts, and how long it takes; needs root'
	@echo '  make test-metrics a Prometheus scrapes four ranks on two hosts; fetches it from Debian; needs root'
	@echo '  make test-tools   the tests of benchmarks and of the other test programs; 5 minutes'
	@echo '  make bench        the collectives of one host against gloo and OpenMPI, 8 B to 64 MiB'
	@echo '                    (ARGS="--operations all_reduce --launches 10"; ARGS=--help)'
	@echo '  make bench-net    every operation between hosts on links of 100 Mb/s, 1 and 10 Gb/s against gloo and'
	@echo '                    OpenMPI; the hosts are network namespaces: needs root; an hour; resumable (ARGS=--quick,'
	@echo '                    ARGS=--help; ARGS="allreduce --rate 1gbit": codecs in depth)'
	@echo '  make bench-choice is the planner'\''s choice the fastest? every algorithm forced beside it, one host and two'
	@echo '                    (needs root); a quarter of an hour; resumable (ARGS="--layouts 1x4"; ARGS=--help)'
	@echo '  make bench-ddp    training over 4 such hosts: time to accuracy, compressed and not; an hour'
	@echo '  make bench-critics'
	@echo '                    where compression helps: 4 links and shared memory, 3 batch sizes, 2 networks; an hour'
	@echo '  make bench-recovery'
	@echo '                    a rank is killed: how long does training stand still? beside torchrun and torchft; half an hour'
	@echo '  make compression-study'
	@echo '                    what codecs do to training, simulated in one process; resumable (ARGS=--quick)'
	@echo '  make conformance  PyTorch'\''s own DistributedTest suite, with gloo beside it; resumable (ARGS=--quick)'
	@echo '  make differential'
	@echo '                    1000 random sequences of operations against exact arithmetic (ARGS="--sequences 100")'
	@echo '  make matrix       the Python tests with every algorithm forced, over every transport, with small segments,'
	@echo '                    with shared tensors; hours; resumable (ARGS="--sample 4m"; ARGS=--help)'
	@echo '  make membership-sim'
	@echo '                    how members agree on who goes on after a loss: 100000 runs with faults on a simulated'
	@echo '                    network, a minute (ARGS="--exhaustive", ARGS=--large; ARGS=--help)'
	@echo '  make chaos        training while ranks are killed, stopped, sent away and replaced at random: 10 minutes'
	@echo '                    (ARGS="--minutes 1 --seed 7"; ARGS=--help)'
	@echo '  make attacks      a stranger on the network attacks a training job: memory, descriptors, rate of steps; needs'
	@echo '                    root; 18 minutes (ARGS=--quick: one; ARGS=--help)'
	@echo '  make relay        1000 runs of a job with a key, while a relay between its hosts changes, drops, repeats, swaps'
	@echo '                    or diverts records of TLS; needs root; 15 minutes (ARGS="--runs 60"; ARGS=--help)'
	@echo '  make horovod      the tests of operations by name (Horovod'\''s API); make bench-horovod: beside those by order'
	@echo '  make horovod-random'
	@echo '                    calls by name in any order, from any thread: SEEDS=1000 orders; FIRST=370 goes on there'
	@echo '  make build        only build; .venv/bin/python then knows the backend "ringdist"'
	@echo '  make cuda         also build the library for NVIDIA GPUs (CUDA tensors, compressed or not); needs nvcc'
	@echo '  make wheel        a wheel for the torch of .venv, into dist/, and tried: for machines without a compiler'
	@echo '  make docs         the documentation as HTML, in build/docs; fails on a broken link'
	@echo '  make lint         format, style and include rules (what CI checks first)'
	@echo '  make call-path    the functions from ProcessGroupRing::allreduce to the transport, by gdb; minutes'
	@echo '  make format       rewrite the files so that lint is content'
	@echo '  make sanitize     the C++ tests under ASan + UBSan, then under TSan'
	@echo '  make fuzz         bytes that libFuzzer makes up, into what reads bytes of others; 10 minutes per target'
	@echo '                    (ARGS="tcp shm", FUZZ_SECONDS=60; ARGS=--help)'
	@echo '  make clean        remove what was built; .venv stays'
	@echo
	@echo 'Each makes .venv and installs what is missing first. PYTHON=python3.12 chooses the interpreter,'
	@echo 'RINGDIST_UCX=system the UCX of the machine, MAX_JOBS=1 how many compilers run at once.'

demo: build
	$(VENV)/torchrun --nproc-per-node=$(RANKS) examples/ddp_digits.py

examples: build
	$(VENV)/torchrun --nproc-per-node=$(RANKS) examples/fsdp2_char_lm.py
	$(VENV)/torchrun --nproc-per-node=$(RANKS) examples/tensor_parallel.py
	$(VENV)/torchrun --nproc-per-node=$(RANKS) examples/pipeline_parallel.py

docs:
	@tools/bootstrap.sh
	$(VENV)/python -m pip install --disable-pip-version-check --quiet -r docs/requirements.txt
	$(VENV)/python -m sphinx -b html --fail-on-warning --keep-going --quiet docs build/docs
	@echo 'build/docs/index.html'

# Each of these ends with its ten slowest tests, from the reports in this folder.
TIMINGS := build/timings
PYTEST = $(VENV)/python -m pytest tests/python -q
# One more than there are cores: a part of the tests' time is waiting.
BESIDE = --dist worksteal --numprocesses $$(($$(tools/jobs.sh) + 1))

check: lint
	@tools/bootstrap.sh tests
	@tools/build.sh cpp_tests
	@tools/build.sh python
	@rm -rf $(TIMINGS)
	$(VENV)/ctest --test-dir build/release --output-on-failure --no-tests=error --progress \
	  --parallel $$(($$(tools/jobs.sh) + 1)) --exclude-regex '^(algorithm|conformance|engine)/'
	$(PYTEST) -m check $(BESIDE) --junitxml=$(TIMINGS)/python.xml
	@$(VENV)/python tools/slowest.py $(TIMINGS)

test:
	@rm -rf $(TIMINGS)
	@$(MAKE) --no-print-directory test-cpp
	@$(MAKE) --no-print-directory test-python
	@$(VENV)/python tools/slowest.py $(TIMINGS)

test-cpp:
	@tools/bootstrap.sh tests
	@tools/build.sh cpp_tests
	$(VENV)/ctest --test-dir build/release --output-on-failure --no-tests=error --progress \
	  --parallel $$(($$(tools/jobs.sh) + 1))

# Without capabilities and with few descriptors, as most users run; then what root alone can do.
test-python: build
	tools/unprivileged.sh $(PYTEST) -m "not (alone or hosts or root or tools)" $(BESIDE) --junitxml=$(TIMINGS)/python.xml
	$(PYTEST) -m "(hosts or root) and not (alone or tools)" $(BESIDE) --junitxml=$(TIMINGS)/hosts.xml
	$(PYTEST) -m alone --junitxml=$(TIMINGS)/alone.xml

# Of benchmarks and of the other test programs. CI runs them if those programs or the package changed.
test-tools: build
	$(PYTEST) -m tools $(BESIDE) --dist loadfile --junitxml=$(TIMINGS)/tools.xml

# What `ringdist status` finds on two hosts, and how long it takes: the median of ten.
test-status: build
	STATUS_ROUNDS=10 $(VENV)/python -m pytest -q -s tests/python/test_status_hosts.py tests/python/test_stragglers_hosts.py

# PROMETHEUS names the folder of its programs, if another one than Debian's is wanted.
PROMETHEUS ?= $(CURDIR)/build/prometheus/usr/bin
test-metrics: build
	test -x $(PROMETHEUS)/promtool || tools/fetch_prometheus.sh
	PROMETHEUS=$(PROMETHEUS) $(VENV)/python -m pytest -q -s tests/python/test_metrics_hosts.py

attacks: build
	$(VENV)/python -m tests.attacks $(ARGS)

relay: build
	$(VENV)/python -m tests.relay $(ARGS)

soak: build
	tools/soak.sh $(ARGS)

bench: build
	$(VENV)/python -m benchmarks.host $(ARGS)

bench-net: build
	$(VENV)/python -m benchmarks.net $(ARGS)

bench-choice: build
	$(VENV)/python -m benchmarks.choice $(ARGS)

bench-ddp: build
	$(VENV)/python -m benchmarks.ddp training $(ARGS)

bench-recovery: build
	$(VENV)/python -m benchmarks.training $(ARGS)

bench-horovod: build
	$(VENV)/python -m benchmarks.horovod $(ARGS)

bench-critics: build
	$(VENV)/python -m benchmarks.ddp critics $(ARGS)

compression-study: build
	$(VENV)/python -m benchmarks.compression_study $(ARGS)

conformance: build
	$(VENV)/python -m tests.conformance $(ARGS)

differential: build
	$(VENV)/python -m tests.differential $(ARGS)

matrix: build
	$(VENV)/python -m tests.matrix $(ARGS)

membership-sim:
	@tools/bootstrap.sh tests
	@tools/build.sh membership_sim
	build/release/out/membership_sim $(ARGS)

# Operations by name: Horovod's API.
horovod: build
	@tools/build.sh cpp_tests
	build/release/out/negotiation_test
	$(VENV)/python -m pytest -v -rP tests/python/test_horovod_*.py tests/python/test_ringdistrun*.py $(ARGS)

SEEDS ?= 1000
FIRST ?= 0
horovod-random: build
	$(VENV)/python -m tests.any_order --seeds $(SEEDS) --first $(FIRST) $(ARGS)

chaos: build
	$(VENV)/python -m tests.chaos $(ARGS)

build:
	@tools/bootstrap.sh
	@tools/build.sh python

cuda:
	@tools/bootstrap.sh
	@tools/build.sh cuda

wheel:
	@tools/bootstrap.sh
	@tools/wheel.sh

lint:
	@tools/bootstrap.sh
	$(CPP_FILES) | xargs -r $(VENV)/clang-format --dry-run -Werror
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/mypy torch_ringdist
	$(VENV)/python tools/check_includes.py
	$(VENV)/python tools/check_row_names.py
	$(VENV)/python tools/check_shared_names.py
	$(VENV)/python tools/check_factories.py
	$(VENV)/python tools/check_words.py
	$(VENV)/codespell $$(git ls-files '*.h' '*.cc' '*.cu' '*.py' '*.pyi' '*.md' '*.sh' '*.cmake' '*.txt' '*.toml')
	$(VENV)/pymarkdown scan --recurse *.md docs csrc/README.md
	@tools/tidy.sh

call-path:
	@tools/bootstrap.sh
	$(VENV)/python tools/call_path.py $(ARGS)

format:
	@tools/bootstrap.sh
	$(CPP_FILES) | xargs -r $(VENV)/clang-format -i
	$(VENV)/ruff check --fix .
	$(VENV)/ruff format .

sanitize:
	@tools/bootstrap.sh tests
	tools/sanitize.sh address
	tools/sanitize.sh thread

fuzz:
	@tools/bootstrap.sh tests
	tools/fuzz.sh $(ARGS)

clean:
	rm -rf build torch_ringdist/*.so torch_ringdist/_build_info.py .venv/installed
