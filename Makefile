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
CYCLONEDX_VERSION := 1.10.0
PANDAS_VERSION := 3.1.1
PYARROW_VERSION := 26.0.1
TELEGRAF_PLUGINS := inputs.tail,inputs.cpu,inputs.mem,inputs.net,inputs.nstat,inputs.ethtool,inputs.internal,outputs.influxdb,parsers.influx,serializers.influx

SCENARIO ?= scenarios/two_flow_fairness.yml
# A checkout builds itself. A wheel has this file too: `dumbbell build` builds its sources below the current directory.
SOURCE := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
COLLECTION := $(SOURCE)/ansible_collections/dumbbell/testbed
TREE := .build/ansible_collections/dumbbell/testbed
GO_PLACES := agent cmd collectors traffic transports
GO_SOURCES := $(SOURCE)/go.mod $(SOURCE)/go.sum $(shell find $(GO_PLACES:%=$(SOURCE)/%) -name '*.go' -o -name '*.o')

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: demo
demo: lab build ## boot the lab, run SCENARIO=scenarios/two_flow_fairness.yml in it, write the report
	$(MAKE) --no-print-directory .lab/provisioned
	ansible-playbook playbooks/run.yml -e scenario=$(SCENARIO)

.PHONY: virtual
virtual: preflight-virtual setup build ## run SCENARIO in virtual time, without a lab, on KERNEL=~/linux@topic; the first time builds a kernel
	ansible-playbook -i inventory/vtime playbooks/virtual.yml -e scenario=$(SCENARIO) $(if $(KERNEL),-e kernel=$(KERNEL))

.PHONY: test
test: lab build .qemu-aarch64 ## run the tests: those of Go and then end-to-end ones in the lab, beside them those in virtual time and all others
	type iperf3 nft tcpdump strace flent tshark chromium pdftotext ipmi_sim ipmitool >/dev/null 2>&1 && \
	    /usr/bin/python3 -c 'import matplotlib' 2>/dev/null || \
	    DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends \
	    iperf3 nftables tcpdump strace flent python3-matplotlib tshark chromium poppler-utils openipmi ipmitool
	$(MAKE) --no-print-directory --jobs=4 --output-sync=target .test-e2e .test-worlds test-code

.PHONY: test-code
test-code: .test-unit .test-integration ## run the Python tests that need no lab

# The lab waits most of the time; what needs no lab yields to it, and to worlds, which begin with a kernel to be built.
# Threads only cost where all cores are busy.
TEST_CODE := POLARS_MAX_THREADS=1 nice -n 19 \
    pytest -m 'not long and not e2e and not kernels and not fidelity and not virtual and not hosts'
.PHONY: .test-unit
.test-unit: setup build
	$(TEST_CODE) --ignore=tests/integration

.PHONY: .test-integration
.test-integration: setup build .qemu-aarch64
	$(TEST_CODE) tests/integration

# First Go's, then those in the lab: both measure time.
.PHONY: .test-go .test-e2e
.test-go: setup build
	go test ./...
	$(MAKE) --no-print-directory test-arm64

.test-e2e: .test-go
	$(MAKE) --no-print-directory .lab/provisioned
	pytest -m 'e2e and not long and not kernels and not fidelity'

.PHONY: .test-worlds
.test-worlds: setup build
	nice -n 10 pytest -m 'virtual and not long'

# The packages whose tests need no more than qemu's emulation of a process has: no netlink, sock_diag, BPF, ptrace or
# namespaces, not all options of sockets, and no program that starts itself again. Their tests that start a program are
# left out: about one in a thousand such runs hangs, because qemu's fork copies locks that other threads hold.
TESTED_FOR_ARM64 := $(addprefix ./agent/,archive clockwatch hold journal kind plan sampler) \
    $(addprefix ./collectors/,clock cpu kernel ntp pace row sampling snmp spool) \
    ./traffic/socket $(addprefix ./transports/atou/,config handshake proto record simulate)
START_A_PROGRAM := TestVirtualArchive|TestAgainstNstat|TestSegments|TestPack

.PHONY: .qemu-aarch64 test-arm64
.qemu-aarch64:
	command -v qemu-aarch64-static >/dev/null || apt-get install --quiet --yes --no-install-recommends qemu-user-static

test-arm64: .qemu-aarch64 ## run tests of Go as arm64 programs, as far as qemu's emulation of a process goes
	GOARCH=arm64 go test -skip '^($(START_A_PROGRAM))$$' -exec qemu-aarch64-static $(TESTED_FOR_ARM64)

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

.PHONY: test-all
test-all: lint test ## run every test, as before a release; takes a night
	pytest -m 'long and not kernels'
	$(MAKE) --no-print-directory test-fidelity test-kernels sanity test-hosts

.PHONY: lint
lint: setup .build/bin/staticcheck ## check style and types of all code
	ruff check && ruff format --check
	mypy
	yamllint --strict .
	ansible-lint --offline --profile production
	test -z "$$(gofmt -l agent bench cmd collectors traffic transports)"
	go vet ./... && staticcheck ./...

.PHONY: collection
collection: setup ## build the archive of the Ansible collection dumbbell.testbed in .build
	rm -rf $(TREE) && mkdir -p $(dir $(TREE))
	cp -RL $(COLLECTION) $(TREE) # ansible-galaxy leaves out links to other places
	ansible-galaxy collection build --force --output-path .build $(TREE)

# ansible-doc would load the actions, which refuse without the Python package: tests/integration/test_collection.py asks it instead.
.PHONY: sanity
sanity: collection ## check the collection by ansible-test; the first time installs its checkers
	git init --quiet $(TREE) # the checkout's git ignores it, and ansible-test what git ignores
	cd $(TREE) && ansible-test sanity --python 3.11 --skip-test ansible-doc

.PHONY: docs
docs: setup ## write the tables in the roles' READMEs and in docs/ again that are made of sources, and the dashboards
	python -m tools.role_docs roles
	python -m tools.command_docs
	python -m tools.event_docs
	python -m tools.evaluation_docs
	python -m tools.dashboards

# Written from nothing: Sphinx does not notice each file that a page shows.
.PHONY: site
site: setup ## build the documentation as a site with search, .build/site/index.html
	rm -rf .build/site
	python -m sphinx --quiet --fresh-env --fail-on-warning --keep-going --conf-dir docs --doctree-dir .build/doctrees . .build/site

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
    $(shell find $(COLLECTION)/roles/ $(COLLECTION)/plugins/ $(COLLECTION)/vars/ $(SOURCE)/inventory/lab -type f ! -name '*.pyc' ! -path '*/roles/run/*')
	ansible-playbook playbooks/provision.yml
	touch $@

.PHONY: seeds
seeds: setup build ## run five published experiments in virtual time, or resume them, and write docs/seeds; SEED=prr runs one of them
	command -v chromium >/dev/null || apt-get install --quiet --yes --no-install-recommends chromium
	python -m tools.seeds $(SEED)

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

.PHONY: preflight preflight-virtual
preflight:
	@sh roles/lab/files/preflight.sh
preflight-virtual:
	@sh roles/lab/files/preflight.sh virtual

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
# Of the same commit, the bytes are the same in every directory. In .build/bin are programs for this machine, in
# .build/linux-arm64 those for hosts of that architecture.
GO_BUILD = GOOS=linux GOARCH=$(filter-out bin,$(*:linux-%=%)) go build -C $(SOURCE) -trimpath -buildvcs=false \
    -ldflags "-s -w -buildid= -X main.version=$(GO_VERSION)"

.build/%/dumbbell-agent: $(GO_SOURCES)
	$(GO_BUILD) -o $(CURDIR)/$@ ./agent

.build/%/dumbbell-collect: $(GO_SOURCES)
	$(GO_BUILD) -o $(CURDIR)/$@ ./cmd/dumbbell-collect

.build/%/atou: $(GO_SOURCES)
	$(GO_BUILD) -o $(CURDIR)/$@ ./cmd/atou

# For a release: files that are called by version and architecture, for each an SBOM (CycloneDX), and checksums.
VERSION := $(shell sed -n '/^version = /{s/.*"\(.*\)"/\1/p;q}' pyproject.toml)
.PHONY: binaries
binaries: .build/dist/SHA256SUMS ## build agent, collectors and atou for amd64 and arm64 into .build/dist, with checksums and SBOMs

.build/dist/SHA256SUMS: $(foreach program,dumbbell-agent dumbbell-collect atou,.build/linux-amd64/$(program) .build/linux-arm64/$(program)) \
    .build/bin/cyclonedx-gomod pyproject.toml
	rm -rf $(@D) && mkdir $(@D)
	for program in $(filter .build/linux-%,$^); do \
	    file=$(@D)/$${program##*/}-$(VERSION)-$$(basename $${program%/*}); \
	    cp $$program $$file; \
	    GOARCH=$${file##*-} cyclonedx-gomod bin -json -std -noserial -version $(VERSION) -output $$file.cdx.json $$file; \
	done
	cd $(@D) && sha256sum -- * >$(@F)

.build/bin/cyclonedx-gomod: Makefile
	GOBIN=$(CURDIR)/.build/bin go install -trimpath github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v$(CYCLONEDX_VERSION)

# It reads BBR's state by cgo; a static binary runs on any host.
.build/bin/ndt-server: $(SOURCE)/traffic/ndt/go.mod $(SOURCE)/traffic/ndt/go.sum
	command -v gcc >/dev/null || apt-get install --quiet --yes --no-install-recommends gcc libc6-dev
	cd $(SOURCE)/traffic/ndt && CGO_ENABLED=1 go build -trimpath -tags netgo,osusergo -ldflags "-s -w -linkmode external -extldflags -static" \
	    -o $(CURDIR)/$@ github.com/m-lab/ndt-server

.build/bin/ndt7-client: $(SOURCE)/traffic/ndt/go.mod $(SOURCE)/traffic/ndt/go.sum
	cd $(SOURCE)/traffic/ndt && go build -trimpath -ldflags "-s -w" -o $(CURDIR)/$@ github.com/m-lab/ndt7-client-go/cmd/ndt7-client

# Built again when the versions above change.
.build/bin/influxd: $(SOURCE)/Makefile
	GOBIN=$(CURDIR)/.build/bin go install -trimpath -ldflags "-s -w -X main.version=$(INFLUXDB_VERSION)" \
	    github.com/influxdata/influxdb/cmd/influxd@v$(INFLUXDB_VERSION)

INSTALL_TELEGRAF = go install -trimpath -tags custom,$(TELEGRAF_PLUGINS) \
    -ldflags "-s -w -X github.com/influxdata/telegraf/internal.Version=$(TELEGRAF_VERSION)" \
    github.com/influxdata/telegraf/cmd/telegraf@v$(TELEGRAF_VERSION)

.build/bin/telegraf: $(SOURCE)/Makefile
	GOBIN=$(CURDIR)/.build/bin $(INSTALL_TELEGRAF)

# For hosts of another architecture: go install refuses GOBIN for them.
.build/linux-%/telegraf: $(SOURCE)/Makefile
	GOMODCACHE=$$(go env GOMODCACHE) GOPATH=$(CURDIR)/.build/go GOARCH=$* $(INSTALL_TELEGRAF)
	install -D .build/go/bin/linux_$*/telegraf $@

# Only a test needs it.
LANGUAGE_SERVER := tests/integration/language_server
.build/language-server: $(LANGUAGE_SERVER)/package.json $(LANGUAGE_SERVER)/package-lock.json
	command -v npm >/dev/null || apt-get install --quiet --yes --no-install-recommends npm
	mkdir -p $@ && cp $^ $@
	npm ci --prefix $@ --ignore-scripts --no-audit --no-fund --loglevel=error
	touch $@

.build/bin/staticcheck:
	GOBIN=$(CURDIR)/.build/bin go install honnef.co/go/tools/cmd/staticcheck@v$(STATICCHECK_VERSION)
