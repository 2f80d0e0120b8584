# Everything a newcomer needs: `make run`, `make test`. Needs python3 >= 3.10 with venv.
# A pipe fails if any of its programs fails; dash has no such option.
SHELL := bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
VENV ?= .venv
# `make run LIGHT=1` installs neither ONNX Runtime nor numpy: the demo without its real inference.
LIGHT ?= 0
# Many tests wait for real programs: four at a time keep two cores busy.
JOBS ?= 4
BIN := $(VENV)/bin
PIP := PIP_PROGRESS_BAR=off $(BIN)/python -m pip --disable-pip-version-check --no-input
# Of what pip prints: what takes long on a slow line, and that it is there.
PROGRESS := sed -un -e 's/^ *Downloading \(.*\/\)*\([A-Za-z0-9_.]*\)-.* (\([0-9.]* MB\)).*/  \2 \3/p' \
  -e 's/^Installing collected packages.*/  all is here, and is unpacked/p'
SOURCES := $(wildcard *.py) parsers collectors daemon workbench tests packaging tools docs/works-with

.PHONY: run test test-system check dev format lint types imports doctest golden dashboards docs schemas fleet bench coverage-campaign live-truth server-truth energy-truth screenshots deb release clean

# The demo; on another port with `make run RUN='--listen 127.0.0.1:9755'`.
run: $(VENV)/$(if $(filter-out 0,$(LIGHT)),.light,.run)
	$(BIN)/tegrascope run --demo --state-dir .state $(RUN)

test: dev
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m 'not system'

# What takes minutes by nature: systemd, packages, a browser, Prometheus, faults, known truths.
test-system: dev
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m system

check: format lint types imports doctest test

dev: $(VENV)/.dev
	@mkdir -p .dev && ln -sfn .. .dev/tegrascope

format: dev
	$(BIN)/ruff format --check $(SOURCES)

lint: dev
	$(BIN)/ruff check $(SOURCES)

types: dev
	$(BIN)/mypy

imports: dev
	$(BIN)/lint-imports

doctest: dev
	$(BIN)/python -m pytest --doctest-modules --doctest-glob='*.md' \
	  --ignore docs/works-with __init__.py parsers collectors daemon workbench README.md docs

golden: dev
	$(BIN)/python -m tests.golden

# grafana/dashboards, out of tools/dashboards; needs Python 3.11, as the library that it uses.
dashboards: dev
	$(BIN)/python -m tools.dashboards

# The pages of the daemon, joined, the table of docs/metrics.md, out of the rows of all metrics,
# docs/published.md, docs/on-a-board.md and docs/energy-truth.md, out of their data, and
# docs/schemas.md.
docs: dev
	$(BIN)/python -m tools.joined_page
	$(BIN)/python -m tools.metrics_page
	$(BIN)/python -m tools.published_page
	$(BIN)/python -m tools.board_page
	$(BIN)/python -m tools.energy_truth page
	$(BIN)/python -m tools.schemas

# A JSON Schema of each JSON output, docs/schemas.md, in build/schemas.
schemas: dev
	$(BIN)/python -m tools.schemas build/schemas

# A simulated fleet for a Prometheus, docs/fleet.md: `make fleet FLEET='--size 200'`.
fleet: dev
	$(BIN)/python -m tools.fleet $(FLEET)

# The whole of it, with a log of 2 GB: `make bench BENCH='--big 2'`.
bench: dev
	$(BIN)/python -m tests.bench $(BENCH)

# Published energy against a known truth: `make coverage-campaign CAMPAIGN='--windows 100'`.
coverage-campaign: dev
	nice $(BIN)/python -m tests.truth.campaign --jobs $(JOBS) $(CAMPAIGN)

# The same truth as the tegrastats of a real daemon, 13 minutes: `make live-truth LIVE='--daemons 4'`.
live-truth: dev
	$(BIN)/python -m tests.truth.live $(LIVE)

# Joules per token of a small server, 13 minutes: `make server-truth SERVER='--windows 20'`.
server-truth: dev
	nice $(BIN)/python -m tests.truth.server $(SERVER)

# Our own and other energy meters on 100 worlds, 15 minutes and 2.5 GB of other people's packages:
# `make energy-truth SCORE='--tool tegrascope'`.
energy-truth: dev
	$(BIN)/python -m tools.energy_truth score $(SCORE)

# The pictures of the docs, in docs/images: needs chromium, and takes three minutes. If a card or a
# goal has no answer, the old pictures stay.
screenshots: dev
	$(BIN)/python -m tests.screenshots $(SCREENSHOTS)

# For both architectures, in dist/: `make deb DEB='--arch arm64 --python 3.10'` for one JetPack.
deb: dev
	$(BIN)/python packaging/deb/build.py $(DEB)

# Wheel, sdist, packages, SBOM, sums and, with a key, an apt repository, in dist/VERSION:
# `make release RELEASE='--key FINGERPRINT --verify'`. CONTRIBUTING.md says how a release is made.
release: dev
	$(BIN)/python packaging/release/build.py $(RELEASE)

clean:
	rm -rf $(VENV) .dev build dist *.egg-info

# Pip is the last thing that comes into a new environment: where it is, the rest is too. Python 3.10
# and 3.11 bring setuptools as well, 9 MB: a build takes its own.
$(BIN)/pip:
	@$(PYTHON) -c 'pass' || \
	  { echo "$(PYTHON) does not start: name another one with make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "tegrascope needs python3 3.10 or newer: install it, or name one with make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "python3 has no venv: apt install python3-venv" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) -qq uninstall --yes setuptools

# Without a network it will do that all requirements are there, though pyproject.toml is newer.
define install
@echo "installs into $(VENV): downloads about $(2) MB, which become $(3) MB" >&2
@$(PIP) install -e '.$(if $(1),[$(1)])' | $(PROGRESS) >&2 || { \
  needed=$$($(BIN)/python -c "import sys; \
    toml = __import__('tomllib' if sys.version_info > (3, 11) else 'tomli'); \
    told = toml.load(open('pyproject.toml', 'rb'))['project']; \
    print(*told['dependencies'], *told['optional-dependencies'].get('$(1)', ()), sep='\n')") && \
  echo "$$needed" | $(PIP) -qq install --no-index -r /dev/stdin && \
  echo "continues with what $(VENV) has" >&2; }
endef

# Python compiles what the demo imports. To compile all that is installed takes longer, and more room.
$(VENV)/.light $(VENV)/.run: export PIP_COMPILE := 0

$(VENV)/.light: $(BIN)/pip pyproject.toml
	$(call install,,20,45)
	@touch $@

$(VENV)/.run: $(BIN)/pip pyproject.toml
	$(call install,onnxruntime,70,190)
	@touch $@ $(VENV)/.light

$(VENV)/.dev: $(BIN)/pip pyproject.toml
	$(call install,dev,220,1100)
	@touch $@ $(VENV)/.run $(VENV)/.light
