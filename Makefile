# Each target sets up its requirements in .venv; `make clean` removes everything.

PYTHON ?= $(shell packaging/choose-python.sh)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WARM := $(VENV)/.warm
READY_DEV := $(VENV)/.ready-dev
READY_FUZZ := $(VENV)/.ready-fuzz
READY_SPARK := $(VENV)/.ready-spark
KAFKA := .kafka/.ready
S3 := .s3/versitygw
REGISTRY := .registry/.ready
APICURIO := io.apicurio:apicurio-registry-app:3.0.9:tar.gz:all
HELM := .helm/helm
NFPM := .nfpm/nfpm
# Packages must have the hashes of the lock file. Builds fetch nothing else: their tools come from
# requirements-build.lock. uv does in seconds what takes pip minutes; where it cannot be had, or
# reaches no index since it does not read pip's settings, pip installs. Python compiles a module when
# it is imported first, not pip all of them. A wheel that is built here is unpacked at once, so that
# it is not compressed: PySpark's would take half a minute.
HASHED := --require-hashes --no-build-isolation --config-settings=--build-option=--compression=stored
PIP := $(BIN)/python -m pip install -q --no-compile $(HASHED)
INSTALL = $(BIN)/python -m uv pip install -q --python $(BIN)/python $(HASHED) $(1) || $(PIP) $(1)
# Hashes of the index's own files for all platforms, not of files on this machine.
COMPILE := env -u PIP_FIND_LINKS $(BIN)/pip-compile -q --strip-extras --allow-unsafe \
	--generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	--no-emit-options
PACKAGES := odradek
SIEGE_MINUTES ?= 10
SOAK_MINUTES ?= 360
# Tests wait for other processes, or for time to pass: run one more test than there are cores.
WAITING := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
SHORT := -m "not interop and not fuzz and not long"
FAST := -m "not slow and not kafka and not spark and not interop and not fuzz and not long"
# And without those of files that start brokers, servers or other processes.
LIGHT := -m "not live and not slow and not kafka and not spark and not interop and not fuzz and not long"

# The tests of a file share its brokers, in one worker; the files begin in the order of collection.
BY_FILE := --dist loadfile --no-loadscope-reorder
# A call into C that keeps the interpreter's lock stops pytest-timeout, too: this ends the worker and
# names its test. Another worker in its place would meet the same test again.
UNTIL_STUCK := -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true --max-worker-restart 0

# Hundreds of processes start in a test run, and each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run cluster test test-all jars check look collect collect-broker collect-others light mutants dist deb secure fuzz siege soak demo interop bench bench-cleaner kafka s3 registry kerberos helm containers clean docs site lock

run: $(READY) $(WARM)
	$(BIN)/odradek serve --set log.dirs=data

# Three brokers on this machine, which share a catalog.
cluster: $(READY) $(WARM)
	$(BIN)/python -m bench.cluster

# The packages and jars are fetched, tools look at the files, and the one that collects the tests
# compiles them, so that no worker does; all at the same time as far as it goes.
test:
	@$(MAKE) --no-print-directory -j 3 collect jars look secure
	$(BIN)/python -m pytest -n $(WAITING) $(BY_FILE) $(UNTIL_STUCK) --hypothesis-profile short $(SHORT)

# And the long forms, which tests/long_forms.py lists; more examples of each property; brokers that
# load their code by themselves, where those of `make test` are forks (tests/support/forking.py).
test-all:
	@$(MAKE) --no-print-directory -j 3 collect jars look secure
	ODRADEK_TESTS_APART=1 $(BIN)/python -m pytest -n $(WAITING) $(BY_FILE) \
		-m "not interop and not fuzz"

# One after the other, since Maven's folder takes one at a time. The server of S3 is no jar, but is
# to be had as they are.
jars:
	@$(MAKE) --no-print-directory kafka
	@$(MAKE) --no-print-directory registry
	@if command -v go >/dev/null; then $(MAKE) --no-print-directory s3 \
		|| echo "there is no server of S3: its tests are skipped"; fi

# Without brokers, and with fewer examples of each property than `make test`.
check: $(READY_DEV)
	@$(MAKE) --no-print-directory -j 2 look secure light

light: $(READY_DEV) $(WARM)
	$(BIN)/python -m pytest -q -n $(WAITING) $(BY_FILE) $(UNTIL_STUCK) --hypothesis-profile quick $(LIGHT)

look: $(READY_DEV)
	$(BIN)/ruff check .
	$(BIN)/mypy $(PACKAGES) bench

# In two processes, each with half of the files.
collect: collect-broker collect-others
collect-broker: COLLECTED := tests/broker
collect-others: COLLECTED := --ignore tests/broker
collect-broker collect-others: $(READY_SPARK) $(WARM)
	@found=$$($(BIN)/python -m pytest --collect-only -q -n 0 $(SHORT) $(COLLECTED)) \
		|| { echo "$$found"; exit 1; }

# Sixty small mistakes, one at a time: how many do the fast tests find? About an hour.
mutants: $(READY_DEV)
	$(BIN)/python -m tests.mutants $(FAST)

# The wheel and the source distribution, checked; the wheel serves from an environment of its own.
dist: $(READY_DEV)
	rm -rf dist build
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m tests.distribution dist

# The package of Debian, in dist/, for this machine's architecture and Debian's Python.
deb: $(READY) $(NFPM)
	packaging/debian/build.sh $(BIN)/python $(NFPM)

$(NFPM):
	GOBIN=$(CURDIR)/.nfpm go install github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.4

# Packages with known holes, secrets in the files; `look` finds dangerous code.
secure: $(READY_DEV)
	$(BIN)/python -m tests.secure

# Tests with other examples of all properties than `make test`, crashes at thousands of moments, and
# bytes that reach new code. tests/fuzz/seeds.py describes FUZZ_SCRIPTS, FUZZ_SEED, FUZZ_KILLS,
# FUZZ_CLUSTERS and FUZZ_SECONDS.
fuzz: $(READY_DEV) $(READY_FUZZ) kafka
	$(BIN)/python -m pytest -n auto --hypothesis-profile random $(FAST)
	$(BIN)/python -m pytest -n auto -m fuzz

# A cluster of real processes under load and in trouble; every promise to its clients is checked.
siege: $(READY_DEV) kafka s3 $(WARM)
	$(BIN)/python -m tests.siege --minutes $(SIEGE_MINUTES)

# The same without faults but for a restart every ten minutes: nothing may grow, nobody complain.
soak: $(READY_DEV) $(READY_SPARK) s3 $(WARM)
	$(BIN)/python -m tests.soak --minutes $(SOAK_MINUTES)

# A client that cannot be built fails its own tests and no others. The suites run once more with two
# workers, with three brokers and a PostgreSQL, with these and a bucket, and in a mild siege: one of
# the three is killed each minute.
interop: $(READY_DEV) $(READY_SPARK) kafka $(WARM)
	-$(BIN)/python -m tests.interop.build
	$(BIN)/python -m pytest -m "interop or kafka or spark"
	INTEROP_BROKER=workers $(BIN)/python -m pytest -m interop tests/interop
	INTEROP_BROKER=cluster $(BIN)/python -m pytest -m interop tests/interop
	INTEROP_BROKER=shared $(BIN)/python -m pytest -m interop tests/interop
	INTEROP_BROKER=siege $(BIN)/python -m pytest -m interop tests/interop

demo: $(READY_DEV) $(READY_SPARK) $(WARM)
	$(BIN)/python -m bench.demo

bench: $(READY_DEV) $(READY_SPARK) kafka $(WARM)
	$(BIN)/python -m bench.run --save
	$(BIN)/python -m bench.curves
	$(BIN)/python -m bench.page
	$(BIN)/python -m bench.spark

bench-cleaner: $(READY_DEV) kafka $(WARM)
	$(BIN)/python -m bench.cleaner

# Apache Kafka's jars, for comparisons; without Java or Maven, comparisons are skipped.
kafka:
	@if [ -n "$$KAFKA_LIBS" ] || [ -e $(KAFKA) ]; then :; \
	elif command -v java >/dev/null && command -v mvn >/dev/null; then \
		mvn -q -B -f bench/pom.xml dependency:copy-dependencies \
			-DoutputDirectory=$(CURDIR)/.kafka/libs && touch $(KAFKA); \
	else echo "no java or mvn: what compares with Apache Kafka is skipped"; fi
	@[ ! -e $(KAFKA) ] || [ -e .kafka/classes.jsa ] || $(PYTHON) -m tests.kafka_classes

# A server of S3 for the tests; without it, or Go to build it, they skip what asks one.
s3: $(S3)

$(S3):
	GOBIN=$(CURDIR)/.s3 go install github.com/versity/versitygw/cmd/versitygw@v1.8.0

# A schema registry for the tests, Apicurio's; without Java or Maven, they skip what asks one.
registry:
	@if [ -e $(REGISTRY) ]; then :; \
	elif command -v java >/dev/null && command -v mvn >/dev/null; then \
		mvn -q -B dependency:copy -Dartifact=$(APICURIO) -DoutputDirectory=$(CURDIR)/.registry && \
		tar -xzf .registry/apicurio-registry-app-*.tar.gz -C .registry && \
		rm .registry/apicurio-registry-app-*.tar.gz && touch $(REGISTRY); \
	else echo "no java or mvn: what asks a schema registry is skipped"; fi

docs: $(READY_DEV)
	$(BIN)/python -m odradek.config.reference > docs/configs.md
	$(BIN)/python -m odradek.config.without_effect docs/compatibility.md
	$(BIN)/python -m odradek.broker.reference > docs/apis.md
	$(BIN)/python -m odradek.broker.observability.metrics_reference > docs/metrics.md
	$(BIN)/python -m tests.authorization.reference > docs/authorization.md
	$(BIN)/python -m docs.grafana.dashboard > docs/grafana/odradek.json

# A build does not show the theme authors' warning about a later version of MkDocs.
site: $(READY_DEV)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# For the tests of logins by Kerberos; it is built here, and needs libkrb5-dev and a C compiler.
kerberos: $(READY_DEV)
	$(BIN)/python -m pip install -q --require-hashes -r requirements-kerberos.lock

# Locked versions stay; `pip-compile -U` or `-P name` with these options raises them.
lock: $(READY_DEV)
	$(COMPILE) --all-build-deps --only-build-deps -o requirements-build.lock pyproject.toml
	$(COMPILE) -o requirements.lock pyproject.toml
	$(COMPILE) --extra console -o requirements-console.lock pyproject.toml
	$(COMPILE) --extra console --extra dev -o requirements-dev.lock pyproject.toml
	$(COMPILE) -o requirements-install.lock requirements-install.in
	$(COMPILE) --extra fuzz -o requirements-fuzz.lock pyproject.toml
	$(COMPILE) --extra kerberos -o requirements-kerberos.lock pyproject.toml
	$(COMPILE) --extra pipeline -P pyspark==4.0.0 -o requirements-pipeline.lock pyproject.toml

# Helm for the tests of the chart; without it, or Go to build it, they are skipped.
helm: $(HELM)

$(HELM):
	GOBIN=$(CURDIR)/.helm go install helm.sh/helm/v3/cmd/helm@v3.18.4

# Compose, and a Debian that the images of tests/containers begin with; as root, with podman. An image
# for arm64 is tested where QEMU runs programs for it (qemu-user-static).
containers: $(READY_DEV) kafka s3 registry
	$(BIN)/python -m tests.containers.prepare

clean:
	rm -rf $(VENV) data .kafka .interop .s3 .registry .helm .nfpm .containers .secure_cache artifacts site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "odradek needs Python 3.11 or newer: use make PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) -r requirements-install.lock || echo "uv cannot be had: pip does its work, which takes a while"

$(READY): $(BIN)/python pyproject.toml requirements-build.lock requirements.lock
	$(call INSTALL,-r requirements-build.lock -r requirements.lock)
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	touch $@

# Numba compiles the kernels, which takes a while and should not do so in the first test or request.
$(WARM): $(READY)
	$(BIN)/python -m odradek.broker.process.warm_up
	touch $@

$(READY_DEV): $(READY) requirements-dev.lock
	$(call INSTALL,-r requirements-dev.lock)
	touch $@

# Without a wheel for this Python it is not compiled: the rest of `make fuzz` continues.
$(READY_FUZZ): $(READY_DEV) requirements-fuzz.lock
	@if $(call INSTALL,--only-binary atheris -r requirements-fuzz.lock); \
	then touch $@; \
	else echo "atheris is not installed (see pip's error): fuzzing by coverage is skipped"; fi

$(READY_SPARK): $(READY_DEV) requirements-pipeline.lock
	$(call INSTALL,-r requirements-pipeline.lock)
	touch $@
