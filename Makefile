# The project's commands. `make demo` and `make test` do everything; what is missing on the machine they name.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build
export CGO_ENABLED := 0
# For tests as for the binary: no path of the machine in either, and nothing is compiled twice for the two.
export GOFLAGS := -trimpath

BIN     := bin/x402-wallet
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
LINT    := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: build demo test nightly race matrix vault signers catalogue monitoring platforms lint bench crash e2e prep cross tidy vet fmt release reproducible

build:
	go build -buildvcs=auto -ldflags '$(LDFLAGS)' -o $(BIN) .

# A first paid call through the real MCP server: no money, no network beyond package registries.
demo: need-go build
	$(BIN) demo

# A fleet on this machine, from nothing: PostgreSQL, two replicas of the service, a paywall, two agents (docs/fleet.md).
.PHONY: demo-fleet
demo-fleet: need-go need-postgres build
	go run ./examples/fleet -program $(BIN)

# All tests but those of `make nightly`. `make lint` runs the checks of `go vet`, so that they are not run here again.
TEST := go test -count=1 -vet=off -timeout 25m
test: need-go need-node need-cc need-postgres need-sqlite3 prep build
	X402_WALLET_BIN=$(CURDIR)/$(BIN) $(TEST) -p 4 -skip '^($(SLOW))$$' ./e2e/cli ./e2e $$(go list ./... | grep -vE '^x402-wallet/($(RACED)|$(NIGHTLY))$$')
	$(TEST) -run '^($(ALONE))$$' ./pay
	$(RACE) -p 4 -skip '^($(ALONE))$$' $(addprefix ./,$(subst |, ,$(RACED)))

# The packages whose goroutines share the money: they are tested under the race detector. NIGHTLY and SLOW are the packages and
# the single tests that `make nightly` alone runs.
RACED   := pay|history|history/sqldb|tools|wallet/agent
NIGHTLY := e2e/agent|e2e/crash|e2e/monitoring|e2e/vault
SLOW    := TestPaysByAnHSM|TestPaywallUnderAttack|TestCatalogue

# The race detector needs cgo. It does not watch SQLite, which is Go code here and twenty times slower under it, nor the key
# derivation. ALONE are tests that the detector would only slow down: they do one thing after another. The simulation is not built
# for it (!race), nor is what looks for wiped keys in memory.
RACE := CGO_ENABLED=1 $(TEST) -race -gcflags=modernc.org/...=-race=false -gcflags=golang.org/x/crypto/...=-race=false
ALONE := TestSimulation|TestVerifyFindsEveryCell|TestThousandsOfOpenPayments|TestRequestsLeaveNothing|TestTheQueue|TestAllAgentsQuestionsAreBounded

# What is slow or rare: everything under the race detector, every proof at its full length, 2,000 crash points, the whole matrix,
# the owner's vault, the pages in Chromium, monitoring by a real Prometheus, signers with an HSM in software, the trials with
# scripted agents, the mutants, all six platforms. It takes hours; `make crash LONG=1`, every crash point, another one.
nightly: POINTS := 2000
nightly: BYTES := all
nightly: need-chromium need-prometheus need-hsm need-strace test race matrix proof vault signers catalogue monitoring demo-fleet screenshots trials load mutants platforms
race: need-go need-node need-cc need-postgres need-sqlite3 prep
	$(RACE) -timeout 40m -skip '^($(ALONE)|$(SLOW)|TestMultiplesOfTheBasePoint|TestTheSameSignaturesAsTheLibrary)$$' $$(go list ./... | grep -vE '^x402-wallet/($(NIGHTLY))$$')

# Every way to pay in every set-up of the wallet; `make test` runs a part of that.
matrix: need-go need-node need-postgres prep
	$(TEST) -v ./e2e/matrix -timeout 1h -args -whole | grep -v '^=== '

# The owner's vault against its model, on a real chain, with faults in the contract that its tests must find.
vault: need-go need-node prep
	$(TEST) ./e2e/vault

# Keys in an HSM.
signers: need-go need-node need-hsm prep
	$(TEST) -run TestPaysByAnHSM ./e2e

# The routes of the reference's own servers, sold by each of its adapters. Their packages take 370 MB.
catalogue: need-go need-node prep
	e2e/lab/prep.sh adapters
	$(TEST) -run TestCatalogue ./e2e

# The metrics and the alerts, by a real Prometheus.
monitoring: need-go need-prometheus
	$(TEST) ./e2e/monitoring

platforms:
	$(MAKE) cross VET=1 CROSS='linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 windows-amd64 windows-arm64'

# What docs/proof.md states, in numbers: random sequences on the ledger and its model, simulated worlds, executions of
# each fuzz target. -rapid.seed and -sim.seed repeat one that failed; both print it.
SEQUENCES := 100000
SEEDS     := 20000
EXECS     := 10000
ROUNDS    := 10000
.PHONY: proof model simulation fuzz patient failover edits
proof: model simulation edits failover fuzz crash patient

# A shell edits the ledger at random, and tries to get more signed than the owner allows. -edits.seed repeats a round.
edits: need-go
	go test -count=1 -timeout 3h -v -run TestEdits ./e2e/edits -args -edits.seed 0 -edits.rounds $(ROUNDS) | grep -v '^=== '

# Waits until what was signed for has expired by the wallet's own clock.
patient: prep
	go test -count=1 -timeout 15m -run 'TestPaysUpto|TestTempoUntil' ./e2e -args -patient

model:
	GOGC=400 go test -count=1 -timeout 2h -v -run TestTheLedgerIsItsModel ./history -args -rapid.checks $$(($(SEQUENCES) / 2)) | grep -v '^=== '

# A ledger in PostgreSQL: 1,000 messages of changes cut; processes, services, and the server, killed 20 times under load; a synchronous
# standby promoted when 1,000 payments had left.
failover: need-go need-postgres
	$(TEST) -v -run TestAChangeIsMadeOnce ./history/sqldb -args -cuts 1000 | grep -v '^=== '
	$(TEST) -v -run 'TestServerIsKilled|TestPromotion|TestProcessesAreKilled' ./history -args -crashes 20 -told 1000 -kills 20 | grep -v '^=== '
	$(TEST) -v -run TestServicesAreKilled ./e2e/cli -args -kills 20 | grep -v '^=== '

simulation: need-go
	GOGC=400 go test -count=1 -timeout 2h -v -run TestSimulation ./pay -args -sim.seeds $(SEEDS) | grep -vE '^=== |/seeds'

# A number of executions and not a time, so that the same is tried on every machine. What a target finds is written to its
# package's testdata/fuzz, to be committed with the repair. BLIND=1 does not look at which code runs, and so compiles nothing anew.
fuzz:
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; sum=0 targets=0 built=; while read -r package target; do \
		[ "$$built" = "$$package" ] || { go test -c $(if $(BLIND),,-fuzz .) -o "$$dir/fuzz" "./$$package"; built=$$package; }; \
		out=$$(cd "$$package" && "$$dir/fuzz" -test.run '^$$' -test.fuzz "^$$target\$$" -test.fuzztime $(EXECS)x -test.fuzzcachedir "$$dir" 2>&1) || { echo "$$out"; exit 1; }; \
		execs=$$(grep -o 'execs: [0-9]*' <<<"$$out" | tail -1 | tr -dc 0-9); \
		printf '%9d executions  %s %s\n' "$$execs" "$$package" "$$target"; \
		sum=$$((sum + execs)) targets=$$((targets + 1)); \
	done < <(git grep -oE '^func Fuzz[A-Za-z0-9]+' -- '*_test.go' | sed -E 's|/[^/]*:func | |' | sort); \
	echo "fuzz: $$sum executions of $$targets targets, nothing found"

e2e: need-node need-prometheus prep
	e2e/lab/prep.sh adapters
	go test -count=1 -timeout 10m ./e2e/...

# The wallet in the hands of a scripted agent, sensible and careless: the table of trials.
.PHONY: trials
trials: need-go
	go test -count=1 -timeout 5m -v -run 'TestTrials|TestJudge' ./e2e/agent | grep -vE '^ *(===|---)'

# The paywall's memory under 10,000 visitors without money who do their worst, while others buy.
.PHONY: load
load:
	go test -count=1 -timeout 5m -v -run TestPaywallUnderAttack ./e2e -args -hostile 10000

prep: need-node
	e2e/lab/prep.sh

BYTES := cut

# The real binary killed at its system calls, and its disk failing; judged by the books of seller, facilitator and chains. Then
# a paid call cut at every byte. POINTS=n tries that many points on each engine, LONG=1 all; BYTES=all cuts every line at every byte
# in every way; ON=SQLite|PostgreSQL ONLY='SCENARIO CALL N ACT' one that was reported.
crash: need-go need-strace need-postgres build
	go vet -tags crash ./e2e/crash ./wallet/owner
	go test -tags crash -count=1 -vet=off -run TestOrderOnDisk ./wallet/owner
	X402_WALLET_BIN=$(CURDIR)/$(BIN) go test -tags crash -count=1 -v -timeout 5h -run 'TestSweep$(if $(ON),/$(ON))|TestStrace' ./e2e/crash -args $(if $(POINTS),-points $(POINTS)) $(if $(LONG),-long) $(if $(ONLY),-only '$(ONLY)')
	go test -count=1 -v -timeout 2h -run 'TestWire|TestProxy|TestRefused' ./e2e/crash -args -everybyte $(BYTES) | grep -v '^=== '

# The wallet's pages in a real Chromium: light, dark and narrow, by keyboard, by WCAG (axe-core), and no request to anybody else.
# PICTURES is where the screenshots go.
PICTURES := bin/screenshots
.PHONY: screenshots
screenshots: need-go need-node need-chromium build
	e2e/lab/prep.sh axe
	go vet -tags chromium ./e2e/pages
	X402_WALLET_BIN=$(CURDIR)/$(BIN) go test -tags chromium -count=1 -timeout 5m ./e2e/pages -args -pictures '$(abspath $(PICTURES))'

bench: build
	X402_WALLET_BIN=$(CURDIR)/$(BIN) go test -run '^$$' -bench . -benchtime 2s ./...

vet:
	go vet ./...

fmt:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo 'run gofmt -w on these'; exit 1; }

# The checks of `go vet` are among these.
lint: fmt
	$(LINT) run --allow-parallel-runners ./...

tidy:
	go mod tidy -diff

# What is published, in dist/: for each of six platforms an archive with completions and manual pages, an MCP bundle and a bill of
# materials; server.json for the MCP registry; checksums. PUBLISHER is the name space there, in reverse DNS; RELEASE_URL is where
# dist/ will be served. KEY=FILE signs the checksums with a key of ssh-keygen. One platform alone: GOOS=… GOARCH=… make build.
PUBLISHER   :=
RELEASE_URL :=
KEY         :=
release: need-go
	PUBLISHER='$(PUBLISHER)' RELEASE_URL='$(RELEASE_URL)' KEY='$(if $(KEY),$(abspath $(KEY)))' ./release.sh

# The release once more, from a fresh clone in another place and without the secret key: the same bytes?
reproducible: release
	dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; git clone -q . "$$dir/elsewhere"; \
	$(MAKE) -C "$$dir/elsewhere" release PUBLISHER='$(PUBLISHER)' RELEASE_URL='$(RELEASE_URL)' KEY=; \
	cmp dist/SHA256SUMS "$$dir/elsewhere/dist/SHA256SUMS" && (cd dist && sha256sum -c --quiet SHA256SUMS) && echo "the same bytes twice: $$(wc -l <dist/SHA256SUMS) files"

# What the compilers of other platforms would reject; with VET=1 of the tests, too, and on Windows not of e2e, whose tests speak to
# terminals and signals of Unix. `make release` builds all six.
CROSS := darwin-arm64 windows-amd64
VET   :=
cross:
	for platform in $(CROSS); do \
		export GOOS=$${platform%-*} GOARCH=$${platform#*-}; \
		go build ./...; \
		go build -o /dev/null .; \
		[ -n '$(VET)' ] || continue; \
		packages=$$(go list ./...); \
		[ $$GOOS != windows ] || packages=$$(grep -v /e2e <<<"$$packages"); \
		go vet $$packages; \
	done

.PHONY: need-go need-node need-cc need-sqlite3 need-strace need-chromium need-postgres need-prometheus need-hsm
need-chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { echo 'the screenshots need Chromium: apt-get install -y chromium'; exit 1; }
need-cc:
	@command -v $$(go env CC) >/dev/null || { echo "the race detector needs a C compiler ($$(go env CC)): install gcc or clang"; exit 1; }
need-prometheus:
	@command -v prometheus >/dev/null && command -v promtool >/dev/null || { echo 'the metrics are tried with a real Prometheus: apt-get install -y --no-install-recommends prometheus'; exit 1; }
need-hsm:
	@command -v softhsm2-util >/dev/null && command -v pkcs11-tool >/dev/null && command -v jq >/dev/null || { echo 'signers are tried with an HSM in software: apt-get install -y --no-install-recommends softhsm2 opensc jq'; exit 1; }
need-sqlite3:
	@command -v sqlite3 >/dev/null || { echo 'another SQLite program is used beside a running wallet: apt-get install -y --no-install-recommends sqlite3'; exit 1; }
need-strace:
	@command -v strace >/dev/null || { echo 'the crash sweep needs strace: apt-get install strace'; exit 1; }
need-postgres:
	@{ command -v initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb'; } >/dev/null || { echo 'the tests of a ledger in PostgreSQL need its server programs: apt-get install -y --no-install-recommends postgresql postgresql-contrib'; exit 1; }
need-go:
	@v=$$(go env GOVERSION 2>/dev/null | sed 's/^go//'); printf '%s\n1.26\n' "$${v:-0}" | sort -VC -r || { echo "x402-wallet needs Go 1.26 or newer (found: $${v:-none})"; exit 1; }
need-node:
	@v=$$(node --version 2>/dev/null | sed 's/^v//'); printf '%s\n20\n' "$${v:-0}" | sort -VC -r || { echo "the tests on real chains need Node 20 or newer (found: $${v:-none})"; exit 1; }
	@command -v npm >/dev/null || { echo 'the tests on real chains need npm'; exit 1; }

# Each mutant breaks an invariant of the money, and must turn a test red.
.PHONY: mutants
mutants:
	go run ./e2e/mutants
