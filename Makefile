# `make help` lists the targets. All files are installed in .venv, .build and .lab of this checkout,
# except Debian packages on the machine that runs the lab.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# Among them is one that makes .o of .c, also of a committed one.
MAKEFLAGS += --no-builtin-rules
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(CURDIR)/.build/bin:$(PATH)
export CGO_ENABLED := 0

UV_VERSION := 0.13.8
INFLUXDB_VERSION := 1.8.10
TELEGRAF_VERSION := 1.37.2
STATICCHECK_VERSION := 0.8.2
PANDAS_VERSION := 3.1.1
PYARROW_VERSION := 26.0.1
TELEGRAF_PLUGINS := inputs.tail,inputs.cpu,inputs.mem,inputs.net,inputs.nstat,inputs.ethtool,inputs.internal,outputs.influxdb,parsers.influx,serializers.influx

SCENARIO ?= scenarios/two_flow_fairness.yml
# Runs a suite and writes docs/results.md again; exits with the status of the suite.
EXPERIMENTS = code=0; python -m dumbbell.cli.suite $(1) || code=$$?; \
    python -m tools.results "lab=results/experiments" "virtual time=results/experiments_virtual"; exit $$code
GO_PLACES := agent cmd collectors traffic transports
GO_SOURCES := go.mod go.sum $(shell find $(GO_PLACES) -name '*.go' -o -name '*.o')

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: demo
demo: lab build ## boot the lab, run SCENARIO=scenarios/two_flow_fairness.yml in it, write the report
	$(MAKE) --no-print-directory .lab/provisioned
	ansible-playbook playbooks/run.yml -e scenario=$(SCENARIO)

.PHONY: virtual
virtual: setup build ## run SCENARIO in virtual time, without a lab, on KERNEL=~/linux@topic; the first time builds a kernel
	ansible-playbook -i inventory/vtime playbooks/virtual.yml -e scenario=$(SCENARIO) $(if $(KERNEL),-e kernel=$(KERNEL))

.PHONY: test
test: lab build ## run the tests: those of Go, then end-to-end tests in the lab, in virtual time, and all others side by side
	type iperf3 nft tcpdump strace flent tshark chromium pdftotext ipmi_sim ipmitool >/dev/null 2>&1 && \
	    /usr/bin/python3 -c 'import matplotlib' 2>/dev/null || \
	    DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends \
	    iperf3 nftables tcpdump strace flent python3-matplotlib tshark chromium poppler-utils openipmi ipmitool
	$(MAKE) --no-print-directory .lab/provisioned
	go test ./...
	$(MAKE) --no-print-directory --jobs=4 --output-sync=target .test-e2e .test-worlds test-code

.PHONY: test-code
test-code: .test-unit .test-integration ## run the Python tests that need no lab

# The lab waits most of the time; what needs no lab yields to it. Threads only cost where all cores are busy.
TEST_CODE := POLARS_MAX_THREADS=1 nice -n 19 \
    pytest -m 'not long and not e2e and not kernels and not fidelity and not virtual and not hosts'
.PHONY: .test-unit
.test-unit: setup build
	$(TEST_CODE) --ignore=tests/integration

.PHONY: .test-integration
.test-integration: setup build
	$(TEST_CODE) tests/integration

.PHONY: .test-e2e
.test-e2e:
	pytest -m 'e2e and not long and not kernels and not fidelity'

.PHONY: .test-worlds
.test-worlds:
	nice -n 19 pytest -m 'virtual and not long'

.PHONY: test-lab
test-lab: lab build ## run every end-to-end test in the lab, with faults and interruptions; takes an hour
	$(MAKE) --no-print-directory .lab/provisioned
	pytest -m 'e2e and not kernels and not fidelity'

.PHONY: test-fidelity
test-fidelity: lab build ## measure a few emulated paths in the lab; needs an idle machine
	$(MAKE) --no-print-directory .lab/provisioned
	pytest -m fidelity

.PHONY: test-virtual
test-virtual: setup build ## run scenarios in virtual time, without a lab; takes half an hour the first time
	pytest -m virtual

.PHONY: test-kernels
test-kernels: lab build ## build a kernel, boot several kernels in a second lab, trace runs in the lab; takes over half an hour
	$(MAKE) --no-print-directory .lab/provisioned
	pytest -m kernels

# The page's commands are run one after the other: what follows one that fails tells nothing.
.PHONY: test-hosts
test-hosts: preflight setup build ## follow docs/physical-testbed.md on emulated hosts as Debian's installer leaves them; takes hours without KVM
	pytest -x -m hosts

.PHONY: lint
lint: setup .build/bin/staticcheck ## check style and types of all code
	ruff check && ruff format --check
	mypy
	yamllint --strict .
	ansible-lint --offline --profile production
	test -z "$$(gofmt -l agent bench cmd collectors traffic transports)"
	go vet ./... && staticcheck ./...

.PHONY: docs
docs: setup ## write the tables in the roles' READMEs, docs/data-model.md and docs/evaluation.md again, and the dashboards
	python -m tools.role_docs roles
	python -m tools.event_docs
	python -m tools.evaluation_docs
	python -m tools.dashboards

.PHONY: lab
lab: preflight setup ## boot the virtual lab
	@sh roles/lab/files/is_up.sh .lab/up playbooks/lab_up.yml roles/lab roles/packages inventory/lab vars || { \
	    ansible-playbook playbooks/lab_up.yml && grep --with-filename . /run/dumbbell/dumbbell/*.pid >.lab/up; }

.PHONY: lab-down
lab-down: setup ## power the lab off and remove its processes and network
	ansible-playbook playbooks/lab_down.yml

.PHONY: provision
provision: lab build ## boot the lab and provision its hosts
	rm -f .lab/provisioned
	$(MAKE) --no-print-directory .lab/provisioned

# Up to date while the hosts are up and none of its inputs has changed. A run checks the hosts' state itself.
.lab/provisioned: playbooks/provision.yml playbooks/kernel.yml .build/bin/dumbbell-agent .build/bin/telegraf .build/bin/influxd \
    $(shell find roles plugins vars inventory/lab -type f ! -name '*.pyc' ! -path 'roles/run/*')
	ansible-playbook playbooks/provision.yml
	touch $@

.PHONY: experiments
experiments: lab build ## run published experiments in the lab, for some hours, or resume them; write docs/results.md
	$(MAKE) --no-print-directory .lab/provisioned
	$(call EXPERIMENTS,suites/experiments.yml --results results/experiments)

.PHONY: experiments-virtual
experiments-virtual: setup build ## run published experiments at full rates in virtual time; write docs/results.md
	$(call EXPERIMENTS,suites/experiments_virtual.yml --inventory inventory/vtime --results results/experiments_virtual)

.PHONY: bench-demo
bench-demo: setup ## time every phase of the demo and write bench/demo.json
	python -m tools.bench demo

.PHONY: bench-overhead
bench-overhead: lab build ## measure the overhead of a point, in the lab and in virtual time, into bench/overhead.json
	$(MAKE) --no-print-directory .lab/provisioned
	python -m tools.bench overhead

.PHONY: fidelity
fidelity: lab build ## measure emulated paths in the lab; write docs/fidelity.md and bench/fidelity.json
	$(MAKE) --no-print-directory .lab/provisioned
	ansible-playbook playbooks/fidelity.yml

.PHONY: fidelity-virtual
fidelity-virtual: setup build ## measure paths in virtual time, up to 10 Gbit/s; write docs/fidelity-virtual.md and bench/fidelity_virtual.json
	ansible-playbook -i inventory/vtime playbooks/virtual_fidelity.yml

.PHONY: bench-collect
bench-collect: build ## measure the cost of the collectors, ss and flent, for 35 minutes, into bench/collect.json
	python -m bench.collect

.PHONY: bench-atou
bench-atou: setup .build/bin/atou .build/bin/bench-quic ## measure how fast and how exactly atou, iperf3 and quic-go send, into bench/atou.json
	command -v iperf3 >/dev/null || apt-get install --quiet --yes --no-install-recommends iperf3
	python -m bench.atou

# Only the benchmark above needs it.
.build/bin/bench-quic: bench/quic/main.go bench/quic/go.mod bench/quic/go.sum
	cd bench/quic && go build -trimpath -o $(CURDIR)/$@ .

.PHONY: bench-vtime
bench-vtime: build ## measure how fast virtual time passes, into bench/vtime.json
	python -m bench.vtime

.PHONY: bench-regress
bench-regress: setup ## simulate histories of nights: false alarms, detected changes and their delay, into bench/regress.json
	python -m bench.regress

.PHONY: bench-scale
bench-scale: setup ## make up a run of 10 000 points, and time opening, listing and reading it, and a cluster's overhead, into bench/scale.json
	PYTHONPATH=.:tests:tests/unit python -m bench.scale

.PHONY: bench-ab
bench-ab: setup ## simulate A/B experiments: false alarms, what is found, how often intervals have the true ratio, into bench/ab.json
	python -m bench.ab

.PHONY: bench-lab
bench-lab: lab build ## measure in the lab how much collectors slow a flow, and how fast rows are stored
	$(MAKE) --no-print-directory .lab/provisioned
	PYTHONPATH=tests python -m bench.in_lab

.PHONY: bench-soak
bench-soak: lab build ## run four flows twenty times in the lab: memory of controller and agents, start times of flows
	$(MAKE) --no-print-directory .lab/provisioned
	PYTHONPATH=tests python -m bench.soak

.PHONY: bench-analysis
bench-analysis: setup .build/pandas ## time collecting and reporting a simulated eight-hour run, compared with pandas
	PYTHONPATH=tests/unit python -m bench.analysis

# Only the benchmark above needs it.
.build/pandas: Makefile
	uv pip install --quiet --target $@ pandas==$(PANDAS_VERSION) pyarrow==$(PYARROW_VERSION)
	touch $@

.PHONY: jupyter
jupyter: setup ## open the notebooks in Jupyter Lab, on loopback
	jupyter lab --ip=127.0.0.1 --ServerApp.root_dir=$(CURDIR) $(JUPYTER_FLAGS)

# With one version of the compiler and no paths of this machine the bytes are the same everywhere. A test compares them.
EBPF_OBJECT ?= collectors/ebpf/counters.o
.PHONY: ebpf
ebpf: ## compile collectors/ebpf/counters.c into the object that is committed beside it
	type clang-14 llvm-strip-14 >/dev/null 2>&1 && test -e /usr/include/bpf/bpf_helpers.h || \
	    apt-get install --quiet --yes --no-install-recommends clang-14 llvm-14 libbpf-dev
	clang-14 -target bpfel -O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -I/usr/include/$$(uname -m)-linux-gnu \
	    -fdebug-compilation-dir=. -c collectors/ebpf/counters.c -o $(EBPF_OBJECT)
	llvm-strip-14 --strip-debug $(EBPF_OBJECT)

.PHONY: build
build: .build/bin/dumbbell-agent .build/bin/dumbbell-collect .build/bin/atou .build/bin/ndt-server .build/bin/ndt7-client .build/bin/telegraf .build/bin/influxd ## build agent, collectors, atou, NDT, Telegraf and InfluxDB

.PHONY: setup
setup: .venv/.installed ## create the Python environment

.PHONY: preflight
preflight:
	@sh roles/lab/files/preflight.sh

.venv/.installed: requirements.lock pyproject.toml
	test -x $(BIN)/uv || { python3 -m venv .venv && $(BIN)/python -m pip install --quiet uv==$(UV_VERSION); }
	uv pip sync --quiet --python $(BIN)/python --require-hashes --compile-bytecode requirements.lock
	uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	touch $@

.PHONY: lock
lock: setup ## write requirements.lock from pyproject.toml
	uv pip compile --quiet --upgrade --python-version 3.11 --group dev --extra cluster --generate-hashes --no-annotate --no-header \
	    --no-emit-find-links --no-emit-index-url --output-file requirements.lock pyproject.toml

# The commit that last changed the sources, so that other commits do not change the programs.
GO_FILES := go.mod go.sum $(GO_PLACES)
GO_VERSION = $$(git log -1 --format=%h -- $(GO_FILES) 2>/dev/null || echo unknown)$$(git diff --quiet HEAD -- $(GO_FILES) 2>/dev/null || echo -dirty)
GO_BUILD = go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$(GO_VERSION)"

.build/bin/dumbbell-agent: $(GO_SOURCES)
	$(GO_BUILD) -o $@ ./agent

.build/bin/dumbbell-collect: $(GO_SOURCES)
	$(GO_BUILD) -o $@ ./cmd/dumbbell-collect

.build/bin/atou: $(GO_SOURCES)
	$(GO_BUILD) -o $@ ./cmd/atou

# It reads BBR's state by cgo; a static binary runs on any host.
.build/bin/ndt-server: traffic/ndt/go.mod traffic/ndt/go.sum
	command -v gcc >/dev/null || apt-get install --quiet --yes --no-install-recommends gcc libc6-dev
	cd traffic/ndt && CGO_ENABLED=1 go build -trimpath -tags netgo,osusergo -ldflags "-s -w -linkmode external -extldflags -static" \
	    -o $(CURDIR)/$@ github.com/m-lab/ndt-server

.build/bin/ndt7-client: traffic/ndt/go.mod traffic/ndt/go.sum
	cd traffic/ndt && go build -trimpath -ldflags "-s -w" -o $(CURDIR)/$@ github.com/m-lab/ndt7-client-go/cmd/ndt7-client

# Built again when the versions above change.
.build/bin/influxd: Makefile
	GOBIN=$(CURDIR)/.build/bin go install -trimpath -ldflags "-s -w -X main.version=$(INFLUXDB_VERSION)" \
	    github.com/influxdata/influxdb/cmd/influxd@v$(INFLUXDB_VERSION)

.build/bin/telegraf: Makefile
	GOBIN=$(CURDIR)/.build/bin go install -trimpath -tags custom,$(TELEGRAF_PLUGINS) \
	    -ldflags "-s -w -X github.com/influxdata/telegraf/internal.Version=$(TELEGRAF_VERSION)" \
	    github.com/influxdata/telegraf/cmd/telegraf@v$(TELEGRAF_VERSION)

.build/bin/staticcheck:
	GOBIN=$(CURDIR)/.build/bin go install honnef.co/go/tools/cmd/staticcheck@v$(STATICCHECK_VERSION)
