PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

INTERPRETERS ?= python3.10 python3.11 python3.12 python3.13 python3.14

BENCHMARKS := start report recording memory workers ranks cuda heap pauses holders clean growth events native overhead

# Rooms whose tests walk the heap of their own process, as those under tests/heap do.
OWN_HEAP := testing capture probes cleanup

.PHONY: help demo test thorough quick gpu interpreters sanitize docs reports bench zoo robustness corpus judge ablation verify-remedies clean \
	$(BENCHMARKS:%=bench-%)

help:
	@echo "make demo          profile a leaking program and its fixed form, compare them, print the reports"
	@echo "make test          lint, types, tests"
	@echo "make thorough      the same with all slow tests, of which make test runs a sample"
	@echo "make quick         the tests that take seconds"
	@echo "make gpu           the tests that need a CUDA device; without one they say why they are skipped"
	@echo "make interpreters  the heap's tests on each of INTERPRETERS, the walker built anew, no torch"
	@echo "make sanitize      the same on PYTHON, with gcc's address and undefined behaviour sanitizers"
	@echo "make docs          the documentation as pages under build/docs; a warning is an error"
	@echo "make reports       make the sample reports under reports/ anew"
	@echo "make bench         overhead beside the peers, sizes, times: each is a bench-NAME of its own of"
	@echo "                   $(BENCHMARKS); QUICK=--quick tries them in minutes"
	@echo "make zoo           how often the verdicts are right, over all programs of the zoo"
	@echo "make corpus        record the zoo's programs, those that changed, for make judge"
	@echo "make ablation      switch off each rule, halve and double each number, print what changes"
	@echo "make verify-remedies  apply each diff that the recorded zoo's reports offer, run again, compare"
	@echo "make judge         judge these recordings and print what changed; ACCEPT=1 accepts it"
	@echo "make robustness    whether they stay the same under other seeds, lengths and budgets"

# torch comes first and by itself, so that no later requirement pulls a build with CUDA.
$(VENV)/.torch:
	@echo "Setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -q --disable-pip-version-check torch==2.13.0
	@touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml setup.py $(wildcard leakscope/*/native/*)
	@$(BIN)/pip install -q --disable-pip-version-check -e .
	@touch $@

$(VENV)/.testing: $(VENV)/.installed
	@$(BIN)/pip install -q --disable-pip-version-check -e '.[test,docs,trackers]'
	@touch $@

# Pages are tested in the Chromium of the system, by axe-core too. What can't be had here is named by
# the tests that are skipped for it.
$(VENV)/.browsing: $(VENV)/.testing tests/browser/axe_core.py
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && apt-get -qq update && \
		DEBIAN_FRONTEND=noninteractive apt-get -qq install -y chromium >/dev/null; } || \
		echo "Pages are not tested in a browser: apt-get install chromium"
	@$(BIN)/python tests/browser/axe_core.py && command -v chromium && touch $@ || true

demo: $(VENV)/.installed
	@$(BIN)/python examples/make_reports.py --out demo detector

# Tests that walk the heap of their own process come first, before the other tests and the libraries of
# theirs fill it: those that walk all of it, file by file, mypy beside them. Of the others one more runs
# than there are cores, for many wait for a program. No worker takes the files with most tests first:
# tests/conftest.py says in which order they come, and tests/sampling.py which slow ones `test` runs.
# Threads of torch's that wait for each other on cores where other programs run burn minutes.
test thorough: export OMP_NUM_THREADS = 1
test thorough: export BROWSER_SCREENSHOTS ?= $(CURDIR)/build/screenshots
test: SELECTED := not corpus and (not slow or sample)
thorough: SELECTED := not corpus
thorough: HEAP_ALONE := $(shell grep -l mark.slow tests/heap/test_*.py)
test thorough: $(VENV)/.testing $(VENV)/.browsing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	printf '%s\n' mypy $(HEAP_ALONE:%="pytest -q -m slow %") | xargs -P 2 -L 1 $(BIN)/python -m
	$(BIN)/python -m pytest -n 2 --dist loadfile -q --durations 25 -m "not slow" tests/heap
	$(BIN)/python -m pytest -n 2 --dist loadfile -q --durations 25 -m "$(SELECTED)" \
		$(OWN_HEAP:%=tests/%)
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -q --durations 40 \
		-m "$(SELECTED)" $(patsubst %,--ignore tests/%,heap $(OWN_HEAP))

quick: $(VENV)/.testing $(VENV)/.browsing
	$(BIN)/python -m pytest -q -m "not slow"

# Their torch must be built with CUDA: PYTHON names an interpreter that has it and the test extras.
gpu:
	PYTHONPATH=. $(PYTHON) -m pytest -q -rs -m gpu tests

interpreters:
	$(PYTHON) tests/interpreters.py $(INTERPRETERS)

sanitize:
	$(PYTHON) tests/interpreters.py --sanitize $(PYTHON)

$(VENV)/.documenting: $(VENV)/.installed
	@$(BIN)/pip install -q --disable-pip-version-check -e '.[docs]'
	@touch $@

docs: $(VENV)/.documenting
	$(BIN)/python -m sphinx -W --keep-going -q -d build/doctrees docs build/docs
	@echo "build/docs/index.html"

reports: $(VENV)/.browsing
	$(BIN)/python examples/make_reports.py --out reports
	-$(BIN)/python examples/make_screenshots.py --out reports

$(VENV)/.benching: $(VENV)/.installed
	@$(BIN)/pip install -q --disable-pip-version-check -e '.[bench]'
	@touch $@

# One after the other, whatever -j says: they would disturb each other.
bench: $(VENV)/.benching
	@for name in $(BENCHMARKS); do $(MAKE) --no-print-directory bench-$$name || exit 1; done

bench-start: $(VENV)/.benching
	$(BIN)/python benchmarks/short_runs.py $(if $(QUICK),--pairs 2 --tracing-pairs 1 --objects 60000)

bench-report: $(VENV)/.benching
	$(BIN)/python benchmarks/report_time.py $(QUICK)

bench-recording: $(VENV)/.benching
	$(BIN)/python benchmarks/recording_size.py $(QUICK)

bench-memory: $(VENV)/.benching
	$(BIN)/python benchmarks/own_memory.py $(QUICK)

bench-workers: $(VENV)/.benching
	$(BIN)/python benchmarks/worker_recording.py $(QUICK)

bench-ranks: $(VENV)/.benching
	$(BIN)/python benchmarks/many_ranks.py $(if $(QUICK),--ranks 32 --epochs 60)

bench-cuda: $(VENV)/.benching
	$(BIN)/python benchmarks/cuda_snapshot.py $(if $(QUICK),--rounds 1)

bench-heap: $(VENV)/.benching
	$(BIN)/python benchmarks/heap/compare.py $(if $(QUICK),--rounds 1 --sizes 50000,--rounds 2)

bench-pauses: $(VENV)/.benching
	$(BIN)/python benchmarks/census_pauses.py $(QUICK)

bench-holders: $(VENV)/.benching
	$(BIN)/python benchmarks/native_holders.py $(QUICK)

bench-clean: $(VENV)/.benching
	$(BIN)/python benchmarks/clean_functions.py $(QUICK)

bench-growth: $(VENV)/.benching
	$(BIN)/python benchmarks/growth_shapes.py $(QUICK)

bench-events: $(VENV)/.benching
	$(BIN)/python benchmarks/event_cost.py $(QUICK)

bench-native: $(VENV)/.benching
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/native/overhead.py $(QUICK)

bench-overhead: $(VENV)/.benching
	$(BIN)/python benchmarks/overhead.py $(QUICK)

zoo: $(VENV)/.testing
	@$(BIN)/pip install -q --disable-pip-version-check -e '.[zoo,known]'
	$(BIN)/python -m pytest -q -m corpus tests
	$(BIN)/python tests/zoo/run.py

# Where recordings are kept, so that worktrees can share them; FORMS=short,long records both.
CORPUS ?= build/corpus
FORMS ?= short

corpus: $(VENV)/.testing
	@$(BIN)/pip install -q --disable-pip-version-check -e '.[zoo]'
	$(BIN)/python tests/zoo/record.py --into $(CORPUS) --forms $(FORMS) --jobs 2

judge: $(VENV)/.testing
	$(BIN)/python tests/zoo/judge.py --from $(CORPUS) --from tests/zoo/recordings --jobs 2 \
		$(if $(ACCEPT),--accept)

ablation: $(VENV)/.testing
	$(BIN)/python tests/zoo/ablation.py --from $(CORPUS) --from tests/zoo/recordings --jobs 2

verify-remedies: $(VENV)/.testing
	$(BIN)/python tests/zoo/verify_remedies.py --from $(CORPUS) --from tests/zoo/recordings

robustness: $(VENV)/.testing
	$(BIN)/python tests/zoo/robustness.py

clean:
	rm -rf build demo leakscope-runs $(VENV) leakscope/*/*.so *.egg-info
