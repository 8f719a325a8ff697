# Fairlead's build. On a fresh Debian 12 machine with Go and make:
#   make demo   shows the product working (a small lab, about a minute)
#   make test   passes its tests (objects regenerated and compared first)
#   make soak   looks for what they did not meet: new seeds, long sweeps, hours
# Both need root for network namespaces and BPF; they use sudo where you are
# not root, and install what is missing with apt-get.

SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo -E env "PATH=$$PATH")
GO ?= go
# For programs and tests alike, or all is compiled twice.
export GOFLAGS := $(GOFLAGS) -trimpath
export CGO_ENABLED := 0

# What regenerating the BPF objects takes, and the standard clients that the
# lab's tests drive.
BUILD_PACKAGES := clang-19 clang-format-19 llvm-19 libbpf-dev linux-libc-dev
TEST_PACKAGES := $(BUILD_PACKAGES) curl wrk iperf3 iproute2 ethtool nftables mptcpize bird2

# A soak: so many runs of these packages, those with tests that draw seeds.
SOAK_RUNS ?= 20
SOAK_PACKAGES ?= $(sort $(dir $(shell grep -rlE '\b(soak|rapid)\.[A-Z]' --include='*_test.go' --exclude-dir=soak .)))

.PHONY: build demo results test soak generate check-generated check-c proto deps clean

# Without DWARF (-w), a quarter of a program, which nothing at run time reads.
# Functions' names stay, for traces and perf, and so does the build's version.
build:
	$(GO) build -ldflags=-w -o bin/ ./cmd/fairlead ./cmd/fairlead-lab
	$(GO) build -ldflags=-w -tags ctl -o bin/fairleadctl ./cmd/fairlead

# All simulations, in 20 minutes (RENEW=fat-tree,proof: these alone, again), to
# results/; the page and its figures go to the docs, data and index.html do not.
results: build
	bin/fairlead sim all --report results $(if $(RENEW),--renew $(RENEW))
	rm -rf docs/results && mkdir docs/results && cp -r results/README.md results/figures docs/results

demo: build
	$(SUDO) bin/fairlead demo

# Packages whose tests make network namespaces or load programs. What is not
# among them needs no root, and runs first.
ROOT_PACKAGES := ./bench/... ./bgp/gobgp ./cmd/... ./config ./daemon/... ./fabric/mptcp ./fabric/pathsel/pathseltest \
	./fabric/probe ./inspect/... ./kernel/... ./lab/...
# Of these, what measures, which another package beside it would disturb; and what
# measures rates of wires that are slower than the machine, and mostly waits.
QUIET_PACKAGES := ./bench/... ./cmd/fairlead
RATE_PACKAGES := ./lab/sevenpaths ./lab/steered ./lab/announced ./lab/held ./lab/chaos ./lab/upgrade ./lab/draintime ./bgp/gobgp ./fabric/probe
# What takes longest begins first, or it would end alone.
LONGEST := ./lab
PURE_PACKAGES = $(filter-out $(shell $(GO) list $(ROOT_PACKAGES)),$(shell $(GO) list ./...))

# Everything is compiled before anything runs: with root's tests two packages
# at a time, and within one several tests that wait, a compiler beside them
# would only slow both.
test: deps build check-generated
	$(GO) vet ./...
	$(MAKE) --no-print-directory test-pure
	$(GO) list -test -export ./... >/dev/null
	$(SUDO) env RAPID_SEED=$${RAPID_SEED:-1} $(GO) test -p 1 -parallel 4 -timeout 18m $(QUIET_PACKAGES)
	$(SUDO) env RAPID_SEED=$${RAPID_SEED:-1} $(GO) test -p 4 -parallel 4 -timeout 18m $(RATE_PACKAGES)
	$(SUDO) env RAPID_SEED=$${RAPID_SEED:-1} $(GO) test -p 2 -parallel 4 -timeout 18m $(LONGEST) \
		$(filter-out $(shell $(GO) list $(QUIET_PACKAGES) $(RATE_PACKAGES) $(LONGEST)),$(shell $(GO) list $(ROOT_PACKAGES)))

test-pure:
	RAPID_SEED=$${RAPID_SEED:-1} $(GO) test -parallel 6 $(PURE_PACKAGES)

# Where the time goes: packages, then tests, the slowest first.
test-times:
	$(SUDO) env RAPID_SEED=1 $(GO) test -count 1 -p 2 -parallel 4 -json ./... | $(GO) run ./soak/times

# Everything that has goroutines, under the race detector; that needs cgo.
RACE_PACKAGES = $(shell $(GO) list -f '{{.ImportPath}} {{.Dir}}' ./... | while read p d; do \
	grep -qsE 'go func|\.Go\(|go [a-z][A-Za-z.]*\(' $$d/*.go && echo $$p; done)
race: TEST_PACKAGES += gcc libc6-dev
race: deps build
	$(SUDO) env CGO_ENABLED=1 RAPID_SEED=$${RAPID_SEED:-1} $(GO) test -race -p 1 -parallel 4 -timeout 1h $(RACE_PACKAGES)

GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
check: check-generated check-c
	@wrong=$$(gofmt -l .); [ -z "$$wrong" ] || { echo "gofmt -w $$wrong" >&2; exit 1; }
	$(GO) vet ./...
	$(GO) run $(GOLANGCI) run ./...

# Every decoder meets a minute of made-up input; what one finds goes beside
# its test under testdata/fuzz and is a case of it from then on.
FUZZ_TIME ?= 1m
fuzz:
	@grep -rHoE '^func Fuzz[A-Za-z0-9]+' --include='*_test.go' . | sed 's/:func / /' | while read -r file name; do \
		echo "$$name: $$(dirname $$file)"; \
		$(GO) test -run '^$$' -fuzz "^$$name$$$$" -fuzztime $(FUZZ_TIME) -fuzzminimizetime 10x $$(dirname $$file) </dev/null || exit 1; \
	done

# Go's benchmarks, compared with those of another commit: BASE=main.
BASE ?= HEAD~1
BENCH ?= .
BENCHSTAT := golang.org/x/perf/cmd/benchstat@v0.0.0-20260709024250-82a0b07e230d
bench-go:
	@dir=$$(mktemp -d) && trap 'git worktree remove --force $$dir/base; rm -rf $$dir' EXIT && \
	git worktree add -q --detach $$dir/base $(BASE) && \
	for p in $(PURE_PACKAGES); do \
		d=.$${p#github.com/fairlead/fairlead}; grep -qs '^func Benchmark' $$d/*_test.go || continue; \
		for _ in 1 2 3 4 5 6; do \
			$(GO) test -run '^$$' -bench '$(BENCH)' $$d >>$$dir/new; \
			[ ! -d $$dir/base/$$d ] || (cd $$dir/base && $(GO) test -run '^$$' -bench '$(BENCH)' $$d) >>$$dir/old; \
		done; \
	done; \
	$(GO) run $(BENCHSTAT) $$dir/old $$dir/new

# Seeds are drawn anew, and tests that ask soak.On() do more. A failure names
# its seed and how to repeat it, and does not end the soak.
soak: deps build
	@failed=0; \
	for run in $$(seq $(SOAK_RUNS)); do \
		echo "soak: run $$run of $(SOAK_RUNS)"; \
		$(SUDO) env FAIRLEAD_SOAK=1 RAPID_NOFAILFILE=1 RAPID_CHECKS=$${RAPID_CHECKS:-1000} \
			$(GO) test -p 1 -count 1 -timeout 2h $(SOAK_PACKAGES) || failed=$$((failed + 1)); \
	done; \
	echo "soak: $$failed of $(SOAK_RUNS) runs failed"; [ $$failed = 0 ]

# Only what is missing, so that a second run needs no network.
deps:
	@missing=$$(for p in $(TEST_PACKAGES); do \
		dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
	if [ -n "$$missing" ]; then \
		$(SUDO) apt-get update -qq && \
		$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	fi

generate:
	$(GO) generate ./bpf ./bench ./kernel/host/hosttest ./fabric/pathsel/pathseltest

# Objects are byte-identical across machines with clang-19: a difference
# means that somebody changed the C and did not commit what it compiles to.
check-generated: generate
	@git diff --exit-code --stat -- '*_bpfel.o' '*_bpfel.go' '*_x86_bpfel.*' || \
		{ echo 'BPF objects differ from their source: run make generate and commit the result' >&2; exit 1; }

# How the C is set (.clang-format): `find bpf -name '*.[ch]' | xargs clang-format-19 -i`
# mends it.
check-c:
	@find bpf -name '*.[ch]' | xargs clang-format-19 --dry-run -Werror

# The API's Go code; needs protoc and its Go plugins, and only after a change
# of api/fairlead.proto.
proto:
	$(GO) generate ./api

clean:
	rm -rf bin
