# `make demo` and `make test` need Python 3.11 or newer and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TRAINING := .venv-training
SITE := .venv-docs
SBOM := .venv-sbom
# Debian's Python comes without venv; root (a container, a CI machine) can mend that here.
INSTALL_VENV = test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq python3-venv

# Where it is set, each process compiles all modules anew: tests are then collected in 20 s of CPU time, not in 7.
unexport PYTHONDONTWRITEBYTECODE

# The modules that are imported are compiled then; to compile all that are installed takes pip as long as all else.
export PIP_NO_COMPILE := 1

.PHONY: demo test test-all test-extras test-nightly extras-release extras-page extras-ns3 extras-cluster extras-site extras-testbed extras-benchmarks extras-simulators test-tensorflow lint format fuzz bench bench-queries bench-publish docs docs-examples docs-pictures site our-dataset notebooks licences sbom lock clean

demo: $(VENV)/.core
	$(BIN)/ddnn-traces demo --out demo

# A process a CPU; an idle one takes tests from a busy one. Long tests wait for other programs: one process more.
PYTEST := $(BIN)/python -m pytest --dist worksteal --numprocesses
MORE = $$(($$(nproc) + 1))
# Those of a cluster and a store mostly wait for them.
MANY = $$((2 * $$(nproc) + 1))

# The files with tests of a mark: to collect the others takes seconds in each process.
MARKED = $$(grep -rl "mark\.$(1)\b" tests --include "test_*.py")

# What needs an extra or root.
EXTRA := testbed or tensorflow or page or site or ns3 or cluster
OTHERS := $(EXTRA) or nightly

# The quick set (docs/testing.md): all but the tests marked long, and those that need an extra: tests/release, and those
# marked page.
test: $(VENV)/.dev
	$(PYTEST) auto -m "not (long or $(OTHERS))" --ignore tests/release

# What the quick set leaves out: the tests marked long, and the Hypothesis tests with many examples.
test-all: $(VENV)/.dev
	HYPOTHESIS_PROFILE=all $(PYTEST) $(MORE) -m "(long or hypothesis) and not ($(OTHERS))" --ignore tests/release

# What repeats test-all in more breadth, or can fail without a change of ours (docs/testing.md).
test-nightly: $(VENV)/.dev $(VENV)/.cluster
	HYPOTHESIS_PROFILE=nightly $(PYTEST) $(MORE) -m "nightly or (hypothesis and not ($(EXTRA)))" --ignore tests/release
	$(PYTEST) auto -m nightly tests/release
	$(MAKE) fuzz

# What the extras publish, explore, ns3 and cluster are needed for (the last on a Dask cluster and Ceph's S3 server); the
# docs site; runs of the testbed, as root, a test module at a time in each process; and the benchmarks on small data, so
# that they keep working. Two parts at a time, since some mostly wait: they share no port, namespace or folder. The
# longest come first. Those of the testbed need no extra, and run while the extras are installed.
EXTRAS := extras-testbed extras-release extras-cluster extras-benchmarks extras-simulators extras-ns3 extras-page extras-site
test-extras: $(VENV)/.dev
	$(MAKE) --no-print-directory --jobs 2 --output-sync=target $(EXTRAS)

extras-release: $(VENV)/.publish
	$(PYTEST) auto -m "not nightly" tests/release

extras-page: $(VENV)/.publish $(VENV)/.explore $(VENV)/.mcp
	$(BIN)/python -m pytest -m page tests/explore tests/export/test_track_events.py

extras-ns3: $(VENV)/.ns3
	$(PYTEST) auto -m ns3 $(call MARKED,ns3)

extras-cluster: $(VENV)/.publish $(VENV)/.cluster
	$(PYTEST) $(MANY) -m "cluster and not nightly" $(call MARKED,cluster)

extras-site: $(VENV)/.dev site
	DDNN_TRACES_MKDOCS=$(abspath $(SITE)/bin/mkdocs) $(BIN)/python -m pytest -m site tests/test_site.py

extras-testbed: $(VENV)/.dev $(TRAINING)/.torch
	DDNN_TRACES_TORCH_PYTHON=$(abspath $(TRAINING)/bin/python) $(PYTEST) $(MORE) --dist loadfile -m "testbed and not tensorflow" tests/testbed

extras-benchmarks: $(VENV)/.publish $(VENV)/.cluster
	$(BIN)/python benchmarks/publish.py --gigabytes 0.01
	$(BIN)/python benchmarks/leak_scan.py --gigabytes 0.1
	$(BIN)/python benchmarks/planted_secrets.py --class "node list" --class user --spellings 1 --profile strict
	$(BIN)/python benchmarks/ingest.py --packets 200000 --repeat 1 --only ddnn-traces
	$(BIN)/python benchmarks/queries.py --runs 2 --rows 20000 --repeat 0 --every 20 --pandas-bytes 2e5
	$(BIN)/python benchmarks/cluster.py --gigabytes 0.3 --repeat 0

extras-simulators: $(VENV)/.ns3
	$(BIN)/python benchmarks/topology_confidence.py --seeds 1 --part 0.02
	$(BIN)/python benchmarks/simulate.py --small
	$(BIN)/python benchmarks/ns3.py --small agreement by_hand skipping

# Runs of the testbed with TensorFlow, which is 1.6 GB.
test-tensorflow: $(VENV)/.dev $(TRAINING)/.tensorflow
	DDNN_TRACES_TENSORFLOW_PYTHON=$(abspath $(TRAINING)/bin/python) $(BIN)/python -m pytest -m tensorflow tests/testbed

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Mutated captures compared with the naive reader, for ten minutes; make test-all has a minute of it.
fuzz: $(VENV)/.dev
	$(BIN)/python tests/fuzz.py --seconds 600

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/ingest.py

# Needs some 10 GB of memory and half an hour; the 100 M rows stay in benchmarks/out.
bench-queries: $(VENV)/.dev
	$(BIN)/python benchmarks/queries.py

# Needs some 12 GB of disk and ten minutes.
bench-publish: $(VENV)/.publish
	$(BIN)/python benchmarks/publish.py

docs: $(VENV)/.dev
	$(BIN)/python docs/generate.py

# Runs the examples of README.md and docs/ and puts their output below them; look at the difference before it is committed.
docs-examples: $(VENV)/.publish
	$(BIN)/python docs/examples.py

# The pictures of README.md and docs/ from the sample's report; needs Chromium.
docs-pictures: $(VENV)/.core
	$(BIN)/python docs/pictures.py

# The docs as HTML in site/. A link or anchor that leads nowhere, and a page without a place in mkdocs.yml, is an error.
site: $(SITE)/.installed
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --strict

# The release data/dataset from the captures again, its check, and the figures and tables of docs/our_dataset.md.
our-dataset: $(VENV)/.publish
	$(BIN)/python docs/our_dataset.py

# Runs the notebooks and writes what they show into them; look at the difference before it is committed.
notebooks: $(VENV)/.dev
	$(BIN)/python notebooks/execute.py

# docs/licences.md, from what is installed with all extras.
licences: $(VENV)/.publish $(VENV)/.explore $(VENV)/.mcp $(VENV)/.cluster $(VENV)/.ns3
	$(BIN)/python docs/licences.py

# The bill of materials of the default install, sbom.json (CycloneDX), from an environment that has nothing else.
sbom: $(SBOM)/.installed
	$(SBOM)/tool/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file sbom.json \
	  $(SBOM)/default/bin/python

# New versions of everything; the files name no registry. (UPGRADE= only adds what pyproject.toml asks for.)
UPGRADE := --upgrade
LOCK := $(BIN)/uv pip compile --quiet $(UPGRADE) --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
  --constraint lock/constraints.txt
lock: $(VENV)/.dev
	$(BIN)/pip install uv
	$(LOCK) --output-file lock/core.txt pyproject.toml
	$(LOCK) --constraint lock/core.txt --extra dev --output-file lock/dev.txt pyproject.toml
	$(LOCK) --constraint lock/dev.txt --extra publish --extra dev-extras --output-file lock/publish.txt pyproject.toml
	$(LOCK) --constraint lock/publish.txt --extra explore --output-file lock/explore.txt pyproject.toml
	$(LOCK) --constraint lock/publish.txt --constraint lock/explore.txt --extra mcp --output-file lock/mcp.txt pyproject.toml
	$(LOCK) --constraint lock/dev.txt --extra ns3 --output-file lock/ns3.txt pyproject.toml
	$(LOCK) --constraint lock/publish.txt --extra cluster --output-file lock/cluster.txt pyproject.toml
	$(LOCK) --constraint lock/publish.txt --group docs --output-file lock/docs.txt
	$(LOCK) --group sbom --output-file lock/sbom.txt
	$(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --no-annotate \
	  --output-file lock/tensorflow.txt lock/tensorflow.in

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); $(INSTALL_VENV) && $(PYTHON) -m venv $(VENV); } || { rm -rf $(VENV); \
	  echo "Python cannot make a virtual environment; on Debian: apt-get install python3-venv"; exit 1; }

$(VENV)/.core: lock/core.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r lock/core.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

# The packet loop is compiled, which takes 20 s once, so that the first tests do not wait for it.
$(VENV)/.dev: lock/dev.txt $(VENV)/.core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r lock/dev.txt
	$(BIN)/python -m ddnn_traces.cli.first_ingest
	touch $@

# One after the other: two pips at once would spoil an environment.
$(VENV)/.publish: lock/publish.txt $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r lock/publish.txt
	touch $@

$(VENV)/.explore: lock/explore.txt $(VENV)/.dev | $(VENV)/.publish
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r lock/explore.txt
	touch $@

$(VENV)/.mcp: lock/mcp.txt $(VENV)/.dev | $(VENV)/.explore
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r lock/mcp.txt
	touch $@

$(VENV)/.cluster: lock/cluster.txt $(VENV)/.dev | $(VENV)/.mcp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r lock/cluster.txt
	touch $@

# CPyCppyy is compiled when it is installed: g++ and Python's headers.
$(VENV)/.ns3: lock/ns3.txt $(VENV)/.dev | $(VENV)/.cluster
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r lock/ns3.txt
	touch $@

# An environment of the docs site alone: its tools need nothing of the package.
$(SITE)/bin/python: | $(VENV)/bin/python
	$(PYTHON) -m venv $(SITE)

$(SITE)/.installed: lock/docs.txt | $(SITE)/bin/python
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r lock/docs.txt
	touch $@

$(SBOM)/.installed: lock/sbom.txt lock/core.txt pyproject.toml | $(VENV)/bin/python
	for each in tool default; do $(PYTHON) -m venv $(SBOM)/$$each; done
	$(SBOM)/tool/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r lock/sbom.txt
	$(SBOM)/default/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r lock/core.txt
	$(SBOM)/default/bin/python -m pip uninstall --quiet --yes setuptools pip
	touch $@

# An environment of the training programs alone. The lock of torch has no hashes: one version has a build for the CPU and
# one for CUDA, which needs 19 packages more; an index has one or the other, and their hashes differ.
$(TRAINING)/bin/python:
	$(PYTHON) -m venv $(TRAINING)

$(TRAINING)/.%: lock/%.txt | $(VENV)/bin/python $(TRAINING)/bin/python
	$(TRAINING)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

clean:
	rm -rf $(VENV) $(TRAINING) $(SITE) $(SBOM) demo build site sbom.json *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
