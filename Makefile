# Everything that can be run here. CI runs `make test` and `make test-all`;
# before a change is proposed, run `make check` too.

GO       ?= go
FUZZTIME ?= 10s
SEEDS    ?= 10000
BIN      := bin

# The modules whose tests run here: the product, and the tests with kernels,
# programs and attackers. Others have their own targets: bench, which measures,
# packaging, which makes releases, and the device plugin of Kubernetes.
MODULES := . e2e

# Those whose code is looked at, too, on Linux.
PACKAGERS := packaging packaging/kubernetes

# The core of docs/architecture.md. Its tests run first.
CORE := ./rocev2/... ./ib/... ./memreg/... ./qp/... ./hca/... ./transport/... ./verbs/... ./rdma/cm/agent/...

# $(call each,COMMAND,ARGUMENTS) runs "go COMMAND -C MODULE ARGUMENTS" for each.
each = for m in $(MODULES); do $(GO) $(1) -C $$m $(2) || exit 1; done
REPORT := $(GO) run ./internal/testreport
ALL    := -C '. $(CORE) ./...' -C 'e2e ./...'

.PHONY: all build preload demo quick core test test-all test-kernel test-programs test-experiments test-packaging test-release release-checks test-kubernetes test-cluster release test-386 test-foreign test-portable measure steady isolated check fuzz e2e-rxe e2e-programs attack bench bench-short bench-quick bench-diff microbench benchcheck examplecheck soak fmt vet lint tidy race seeds clean help

all: build

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: preload ## the tools, into bin/
	$(GO) build -o $(BIN)/ ./cmd/...

# The tools carry the libraries inside. Without a C compiler they build them when
# they are needed, where there is one then.
preload: ## the libraries that let verbs programs use devices of rocev2
	@case "$$($(GO) env GOOS)" in linux) \
	if command -v "$${CC:-cc}" > /dev/null; then $(GO) run ./programs/mkpreload; \
	else echo "SKIPPED preload: there is no C compiler (cc)"; fi;; esac

demo: build ## two processes exchange every operation over loopback; a daemon exports memory
	$(BIN)/rocev2 demo
	internal/scripts/demo-daemon.sh $(BIN)

# Each package's tests have a network namespace of their own where the system
# allows it: no port is taken there.
ISOLATED := $(CURDIR)/$(BIN)/isolated
TESTEXEC = $(if $(shell '$(ISOLATED)' > /dev/null 2>&1 && echo yes),-exec '"$(ISOLATED)"')

# Tests that call the Go command find the modules of every system here, since
# they have no network.
isolated:
	@for m in $(MODULES); do (cd $$m && $(GO) mod download) || true; done
	@case "$$($(GO) env GOOS)" in linux) $(GO) build -o '$(ISOLATED)' ./internal/isolated && { '$(ISOLATED)' || true; };; esac

# Without -exec, with which go test runs again what has not changed.
quick: ## the tests to run at each save: no root, no packages, no kernel (45 seconds, then only what has changed)
	$(GO) test -p 4 -short $(CORE) ./...
	$(GO) test -C e2e -p 4 -short ./...

core: isolated ## all tests of the core alone: what a change of the core runs first (1 minute)
	$(REPORT) -- $(TESTEXEC) -timeout 20m $(CORE)

test: isolated preload ## all tests that need no kernel guests and no programs of the distribution (4 minutes)
	$(REPORT) $(ALL) -- $(TESTEXEC) -timeout 20m

# What one of them needs and does not find it skips, with the reason.
test-all: ## the tests that make test leaves out: kernels, programs, experiments, other systems and processors, Kubernetes (14 minutes)
	@$(MAKE) --no-print-directory -k -j2 test-kernel test-programs test-experiments test-foreign test-packaging test-kubernetes

test-kernel: ## against Linux rxe in emulated guests (needs Linux, root and Debian packages, which it installs: QEMU, cpio ...)
	$(REPORT) -env ROCEV2_E2E=1 -C e2e -- -timeout 25m .
	$(REPORT) -env ROCEV2_E2E=1 -- -run 'Tshark|^Test(Pcap|Capture)' ./observe/dissect ./transport/tap ./fabric/record ./cmd/rocev2

test-programs: preload ## programs of the distribution on our devices, and a browser (needs Linux; root to install the packages: perftest, chromium ...)
	$(REPORT) -env ROCEV2_E2E=1 -C e2e -- -timeout 25m ./programs
	$(REPORT) -env ROCEV2_E2E=1 -- -run '^Test(Page|CopierOfTools|RunDevinfo)' ./cmd/rocev2d/server ./programs ./cmd/rocev2

test-experiments: ## statistics of simulated networks, compared with the tables that are committed (needs nothing but time)
	$(REPORT) -- -timeout 25m -run '^TestExperiments$$' ./fabric/lab -experiments

# The packager is a module of its own. COLD=1: the second build has no cache.
release: ## packages for Debian and Fedora, archives, manual pages, checksums, into dist/; built twice and compared (docs/install.md)
	cd packaging && $(GO) run ./cmd/release -out ../dist $(if $(COLD),-cold)

test-packaging: ## what makes the releases, and every manual page (needs mandoc and groff; half a minute)
	$(REPORT) -C 'packaging ./...' -- -timeout 25m

# What one of the tests needs and does not find it skips, with the reason.
test-release: ## a release of this tree, or that in the folder RELEASE: all its files; installed, upgraded, removed, used, and booted under systemd (docs/install.md; needs root; 3 minutes)
	@begin=$$(date +%s); $(MAKE) --no-print-directory release-checks && echo "test-release took $$(($$(date +%s) - begin)) s"

release-checks:
	cd packaging && $(GO) mod tidy -diff && $(GO) vet ./...
	$(REPORT) -env ROCEV2_E2E=1 $(if $(RELEASE),-env 'ROCEV2_RELEASE=$(abspath $(RELEASE))') -C 'packaging ./...' -- -timeout 25m

# It needs many modules more, so it is a module of its own.
test-kubernetes: preload ## the device plugin, with a kubelet of the same API, and every manifest (docs/kubernetes.md)
	cd packaging/kubernetes && $(GO) mod tidy -diff
	$(REPORT) -C packaging/kubernetes -- -timeout 10m ./...

test-cluster: preload ## kubelets of two nodes run the plugin, perftest and an MPI job (needs root, containerd, runc, debootstrap; builds a kubelet: 10 minutes the first time)
	cd packaging/kubernetes/kubelet && $(GO) mod tidy -diff
	$(REPORT) -env ROCEV2_E2E=1 -C packaging/kubernetes -- -count=1 -timeout 40m -run '^TestCluster$$' .

measure: ## rates and fairness in real time, judged; what the machine does beside it matters (needs Linux, root, nftables, ethtool; half a minute)
	$(REPORT) -env ROCEV2_MEASURE=1 -C e2e -- -timeout 25m -count=1 ./congestion

N    ?= 10
PKG  ?= ./...
LOAD ?= 16

# The ports are taken in a network namespace of its own, away from this machine's
# other programs; the tests have another one.
steady: isolated ## every test binary N times beside busy threads, with pauses, one processor and taken ports (MODULES=. PKG=./hca chooses packages; hours)
	$(GO) build -o $(BIN)/steady ./internal/steady
	@for m in $(MODULES); do $(GO) list -C $$m -deps -test $(PKG) > /dev/null && \
		$(if $(TESTEXEC),'$(ISOLATED)') $(BIN)/steady -n $(N) -load $(LOAD) $(if $(TESTEXEC),-ports $(subst ",,$(TESTEXEC))) -C $$m $(PKG) || exit 1; done

check: fmt vet lint tidy race test-386 test-foreign test-portable benchcheck examplecheck seeds fuzz ## what must hold before a change is proposed

fmt: ## every file is formatted
	@out=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	if [ -n "$$out" ]; then echo "not formatted (run gofmt -w):"; echo "$$out"; exit 1; fi

# Vet builds packages and tests. The last one has another byte order.
PLATFORMS := linux/arm64 linux/386 linux/arm windows/amd64 freebsd/amd64 openbsd/amd64 darwin/arm64 linux/s390x

vet: ## go vet, also for other systems
	@$(call each,vet,./...)
	@$(call each,vet,-tags portable ./...)
	@for p in $(PLATFORMS); do echo "vet for $$p"; \
		export CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/}; $(call each,vet,./...); done
	@case "$$($(GO) env GOOS)" in linux) for m in $(PACKAGERS); do $(GO) vet -C $$m ./... || exit 1; done;; esac

lint: ## staticcheck, the version that go.mod names
	$(GO) tool staticcheck ./...
	@staticcheck="$$($(GO) tool -n staticcheck)"; for m in e2e $(PACKAGERS); do echo "staticcheck in $$m"; (cd $$m && "$$staticcheck" ./...) || exit 1; done

# Those of bench, packaging, the device plugin and the example with gRPC, which
# need many modules more, are compared by benchcheck, test-release,
# test-kubernetes, test-cluster and examplecheck.
tidy: ## go.mod and go.sum are what the code needs
	@for m in $(MODULES); do (cd $$m && $(GO) mod tidy -diff) || exit 1; done

race: isolated ## all tests under the race detector, and with one processor (no kernel guests)
	$(REPORT) $(ALL) -- $(TESTEXEC) -race -timeout 25m
	GOMAXPROCS=1 $(GO) test -count=1 ./hca ./verbs

test-386: isolated ## all tests as a 32-bit process (x86 alone; no race detector, no kernel guests)
	@case "$$($(GO) env GOHOSTARCH)" in \
	amd64|386) CGO_ENABLED=0 GOARCH=386 $(REPORT) $(ALL) -- $(TESTEXEC) -timeout 25m ;; \
	*) echo "SKIPPED test-386: this machine does not run 386 programs" ;; esac

test-foreign: ## the core as programs of other processors (arm64, s390x, riscv64, ppc64le) and of Windows, under QEMU and Wine (needs Linux; root to install the packages)
	$(REPORT) -env ROCEV2_E2E=1 -C e2e -- -timeout 40m ./foreign

# What the portable link lacks: groups of sockets (shards), a port or the keys
# of a secured device shared among processes (as the daemon does), events of the
# interface, and the name of the process that has the port.
NOT_SHARED := ^TestSecured(Devices|PortHasNoSharedMemory|Shows)$$|^TestGuardCounters$$|^TestWrapBelowSeals$$|^TestRun(BesideAnOwner|WhileADaemonBegins)$$|^TestLeases$$|^TestPrograms$$|^TestCheckPasses$$|^TestDashboardsNameMetricsThatExist$$
NOT_PORTABLE := '$(NOT_SHARED)|^TestSourcePortsOverLoopback$$|^TestDemoWithFaults$$|^TestShards$$|^TestMulticast$$/shards|^TestWrap$$|^TestAsyncwatchTellsOfThePort$$|^TestOpenErrorsSayWhatToDo$$'

test-portable: ## the link of other systems, on this one
	$(GO) test -tags portable ./transport/udp ./hca ./verbs ./programs/interop/... ./cmd/... -skip $(NOT_PORTABLE)
	$(GO) test -C e2e -tags portable ./loopback -skip $(NOT_PORTABLE)

seeds: ## the seeded worlds in virtual time, SEEDS of each
	$(GO) test ./qp/qptest ./rdma/cm/agent ./transport/owner/relay -count=1 -timeout 25m -run '^Test(XRC|Shared|Datagram)?World' -seeds $(SEEDS)
	$(GO) test ./fabric/network -count=1 -timeout 25m -run '^TestWorlds$$' -worlds $(SEEDS)
	$(GO) test ./fabric/lab -count=1 -timeout 25m -run '^TestWild$$' -wild 1000

fuzz: ## every fuzz target for FUZZTIME
	internal/scripts/fuzz.sh $(FUZZTIME)

e2e-rxe: ## the matrix against Linux rxe in guests, every cell printed
	ROCEV2_E2E=1 $(GO) test -C e2e ./... -count=1 -timeout 30m -v

e2e-programs: ## the programs of a distribution under rocev2 run, every cell printed (docs/programs.md)
	ROCEV2_E2E=1 ROCEV2_E2E_PROGRAMS=all ROCEV2_E2E_DOC="$$PWD/docs/programs.md" $(GO) test -C e2e ./programs -count=1 -timeout 60m -v -run TestAllPrograms

attack: build ## attacks on live devices, on rocev2d and on a listener, and what came of them (docs/threat-model.md)
	cd e2e && $(GO) run ./attack/cmd/roceattack -daemon ../bin/rocev2d

SOAK ?= 1h

soak: preload ## 64 connections for SOAK, with loss, while processes are killed and stopped; then on one shared address
	cd e2e && $(GO) run ./soak -for $(SOAK)
	cd e2e && $(GO) run ./soak -shared -for $(SOAK)

REPORTS := -reports report -readme ../README.md

bench: ## the full grid beside other stacks, into the folder of this processor's model in bench/report (about 40 minutes)
	cd bench && $(GO) run ./cmd/rocebench $(REPORTS) -kernel

bench-short: ## the same with a reduced grid, five rounds, without the Go faces and kernel guests (about 8 minutes)
	cd bench && $(GO) run ./cmd/rocebench $(REPORTS) -quick -repeat 5 -match '^(raw|tcp|iperf3|ours|perf|ucx|fabric|quic)'

bench-quick: ## a reduced grid into bench/out-quick (about 7 minutes)
	cd bench && $(GO) run ./cmd/rocebench -quick -out out-quick

ROUNDS ?= 10

bench-diff: ## commit REF and the working tree in turn: which cells differ (about 6 minutes; MATCH=expression chooses cells, ROUNDS=n how often)
	@if [ -z '$(REF)' ]; then echo "say with what to compare: make bench-diff REF=main [MATCH='^ours/write/'] [ROUNDS=10]"; exit 1; fi
	cd bench && $(GO) run ./cmd/rocebench -diff '$(REF)' -rounds '$(ROUNDS)' $(if $(MATCH),-match '$(MATCH)')

microbench: ## micro-benchmarks with allocation counts
	$(GO) test -run '^$$' -bench . -benchmem ./rocev2 ./memreg ./qp ./transport/... ./fabric ./fabric/lab

benchcheck: ## the measuring program itself
	cd bench && $(GO) mod tidy -diff && $(GO) vet ./... && GOOS=windows $(GO) vet ./... && GOOS=darwin $(GO) vet ./... && $(GO) test ./...

# It has dependencies of its own, so it is a module of its own.
examplecheck: ## the example with gRPC
	cd examples/grpc && $(GO) mod tidy -diff && $(GO) vet ./... && GOOS=windows $(GO) vet ./... && GOOS=darwin $(GO) vet ./... && $(GO) test ./...

clean: ## what was built here
	rm -rf $(BIN) dist e2e/failures bench/out-quick programs/preload/*.so programs/preload/*.so.gz
