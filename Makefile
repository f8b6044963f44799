# fedcomp: `make` lists what there is. Everything runs in .venv, made on first use with the versions in constraints.txt.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
FLOOR_PYTHON ?= python3.12
FLOOR := .venv-floor
NEWEST_PYTHON ?= python3.14
NEWEST := .venv-newest
CONFORMANCE := tests/conformance tests/algorithm tests/compressor
CAPABILITIES ?= default avx2

.PHONY: help setup run real test thorough hf slow check docs docs-serve processors floor newest bench rivals reproduce gpu-report clean
.DEFAULT_GOAL := help

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

setup: $(READY)  ## make .venv with fedcomp and its tools

$(READY): pyproject.toml constraints.txt
	@test -x $(RUN) || $(PYTHON) -c 'import sys; v = sys.version_info; (3, 11) <= v < (3, 15) or \
		sys.exit("fedcomp needs Python 3.11 to 3.14, and $(PYTHON) is %d.%d: say make PYTHON=python3.12" % v[:2])'
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

run: $(READY)  ## compare methods on the 8x8 digits: a table and a picture, in about a minute
	$(RUN) scripts/quickstart.py

real: $(READY)  ## a run between processes of this machine, beside the same run as a simulation
	$(RUN) scripts/real.py

# Compiled files are kept, whatever the caller's environment says: every process of the tests would compile them anew.
test thorough hf slow processors newest: export PYTHONDONTWRITEBYTECODE :=

test: $(READY)  ## fast tests, on all cores up to 8; in one process: .venv/bin/pytest -n 0
	$(RUN) -m pytest

thorough: $(READY)  ## tests that take minutes together: methods on a stand-in for a GPU, servers that do not answer, processes
	$(RUN) -m pytest -m thorough -n $$(($$(getconf _NPROCESSORS_ONLN) + 1))

hf: $(VENV)/.hf  ## tests of fine-tuning, with the extra [hf] and PEFT, which this installs in .venv
	$(RUN) -m pytest tests/model/hf tests/model/lora tests/algorithm/lora tests/dataset/texts tests/scripts/test_pretrain_small.py

$(VENV)/.hf: $(READY)
	$(RUN) -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[hf]' peft
	touch $@

slow: $(READY)  ## tests that take minutes or real data (see DATA in docs/testing.md)
	$(RUN) -m pytest -m slow -n 0 -o faulthandler_timeout=0

check: $(READY)  ## lint, format and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

docs: export NO_MKDOCS_2_WARNING := 1
docs: $(READY)  ## the pages of docs/ and the API as a site in site/; a warning is an error
	$(VENV)/bin/mkdocs build --strict

docs-serve: export NO_MKDOCS_2_WARNING := 1
docs-serve: $(READY)  ## the same at http://127.0.0.1:8000, built anew when a page changes
	$(VENV)/bin/mkdocs serve --no-strict --watch fedcomp

processors: $(READY)  ## methods and codecs with torch's smaller sets of vector instructions; make test has the processor's own
	set -e; for set in $(CAPABILITIES); do ATEN_CPU_CAPABILITY=$$set $(RUN) -m pytest $(CONFORMANCE); done

floor: $(FLOOR)/.ready  ## fast tests on the lowest versions that pyproject.toml admits (FLOOR_PYTHON=python3.12)
	$(FLOOR)/bin/python -m pytest

newest: $(NEWEST)/.ready  ## fast tests on another Python (NEWEST_PYTHON=python3.14), with the versions in constraints.txt
	$(NEWEST)/bin/python -m pytest

$(NEWEST)/.ready: pyproject.toml constraints.txt
	rm -rf $(NEWEST)
	$(NEWEST_PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install -q --no-compile --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

$(FLOOR)/.ready: pyproject.toml constraints-floor.txt
	test -x $(FLOOR)/bin/python || $(FLOOR_PYTHON) -m venv $(FLOOR)
	PIP_CONSTRAINT=constraints-floor.txt $(FLOOR)/bin/python -m pip install -q --no-compile --disable-pip-version-check -e '.[dev]'
	touch $@

bench: $(READY)  ## speed: rounds against a plain loop over clients, codecs against a plain copy
	$(RUN) scripts/bench.py $(if $(DEVICE),--device $(DEVICE))
	$(RUN) scripts/bench_algorithms.py
	$(RUN) scripts/bench_codecs.py
	$(RUN) scripts/bench_mrc.py
	$(RUN) scripts/bench_repeats.py
	$(RUN) scripts/bench_adapters.py

RIVALS := .venv-pfl/.ready .venv-fedjax/.ready

rivals: $(READY) $(RIVALS)  ## speed beside pfl-research and FedJAX, which are installed into environments of their own
	$(RUN) scripts/bench_rivals.py J1 200
	$(RUN) scripts/bench_rivals.py J2

.venv-pfl/.ready: scripts/rivals/pfl.txt
	test -d .venv-pfl || $(RUN) -m venv .venv-pfl
	$(RUN) -c 'import site; print(site.getsitepackages()[0])' > `.venv-pfl/bin/python -c 'import site; print(site.getsitepackages()[0])'`/torch.pth
	.venv-pfl/bin/python -m pip install -q --disable-pip-version-check -r scripts/rivals/pfl.txt
	touch $@

.venv-fedjax/.ready: scripts/rivals/fedjax.txt
	test -d .venv-fedjax || $(RUN) -m venv .venv-fedjax
	.venv-fedjax/bin/python -m pip install -q --disable-pip-version-check -r scripts/rivals/fedjax.txt
	touch $@

reproduce: $(READY)  ## a paper's experiments and their page (PAPER=rand_k SCALE=small|trial|paper BUDGET=hours DEVICE=cuda AT_ONCE=8 ESTIMATE=1)
	$(RUN) -m scripts.reproduce $(or $(PAPER),all) --scale $(or $(SCALE),small) $(if $(BUDGET),--budget $(BUDGET)) \
		$(if $(DEVICE),--device $(DEVICE)) $(if $(AT_ONCE),--at-once $(AT_ONCE)) $(if $(ESTIMATE),--estimate)

gpu-report: $(READY)  ## the first half hour on a GPU: tests, equality, times, as one page in gpu-report/ (DEVICE=cpu SMALL=1)
	$(RUN) -m scripts.gpu_report $(if $(DEVICE),--device $(DEVICE)) $(if $(SMALL),--small)

clean:  ## remove .venv, .venv-floor, .venv-newest, .venv-pfl, .venv-fedjax and caches; outputs/ stays
	rm -rf $(VENV) $(FLOOR) $(NEWEST) .venv-pfl .venv-fedjax build dist site .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
