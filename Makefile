# Run "make help" for the list of targets. "make verify" is exactly what CI runs.

# How many seeds sim plays, and how long sim and each package of faults may take.
SEEDS ?= 300
TIMEOUT ?= 30m
# How long each fuzz target runs.
FOR ?= 10s

# What "controllerd version" says. The date is that of the commit, so that the same sources make the same binary.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
DATE ?= $(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null)
STAMP = -X main.stampedVersion=$(VERSION) -X main.stampedCommit=$(COMMIT) -X main.stampedDate=$(DATE)

GENERATORS := bin/tools/buf bin/tools/protoc-gen-go bin/tools/protoc-gen-go-grpc

# The race detector needs cgo, and cgo a C compiler.
RACE = $(shell test "$$(go env CGO_ENABLED)" = 1 && command -v $(firstword $(shell go env CC)) >/dev/null && echo -race)
SAY_RACE = @echo "race detector: $(if $(RACE),on,off (no C compiler found))"

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run build test faults sim bench proto proto-check lint tidy-check split-brain herd smoke image deploy-check alerts fuzz verify clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## a whole cluster in one process: etcd, controllers, brokers
	go run ./cmd/controllerd dev

build: ## bin/controllerd and bin/broker, static, with their version
	CGO_ENABLED=0 go build -trimpath -ldflags '$(STAMP)' -o bin/controllerd ./cmd/controllerd
	CGO_ENABLED=0 go build -trimpath -o bin/broker ./examples/broker

test: ## all tests but the long ones, with the race detector where it can run
	$(SAY_RACE)
	go test $(RACE) -timeout 15m ./...
	go test $(RACE) -timeout 15m -run '^Test(EL|EP|SL|Stuck)' ./internal/scenarios -args -election queue

faults: ## all tests and the long ones with real faults; RUN=regexp for some
	$(SAY_RACE)
	go test $(RACE) -tags faults -timeout $(TIMEOUT) $(if $(RUN),-run '$(RUN)') ./...

sim: ## the simulation, SEEDS=n seeds
	go test ./internal/sim -run TestSeeds -seeds=$(SEEDS) -v -count=1 -timeout $(TIMEOUT)

bench: ## the benchmarks beside a bare etcd client; RUN=row for one
	go run ./internal/bench $(if $(RUN),-run '$(RUN)')

proto: $(GENERATORS) ## generate Go from proto/
	bin/tools/buf format -w
	bin/tools/buf generate

proto-check: $(GENERATORS) ## proto/ is well formed and its Go code is not stale
	bin/tools/buf lint
	bin/tools/buf format -d --exit-code
	@set -e; fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	bin/tools/buf generate -o "$$fresh"; \
	diff -rq -x '*.proto' -x doc.go "$$fresh/proto" proto || \
	{ echo 'generated code is stale: run "make proto"' >&2; exit 1; }

lint: bin/tools/staticcheck ## gofmt, go vet, staticcheck, and the rules in internal/lint
	@files=$$(gofmt -l .); test -z "$$files" || { echo "run gofmt on:" $$files >&2; exit 1; }
	go test ./internal/lint
	go vet ./...
	go vet -tags faults ./...
	bin/tools/staticcheck -tags faults ./...

tidy-check: ## go.mod and go.sum name what is used and nothing else
	go mod tidy -diff

split-brain: ## two daemons that both think they are active, and what comes of it
	scripts/split-brain.sh

herd: ## what three ways of electing cost an etcd, as a table
	scripts/herd

smoke: build ## twenty seconds of a whole cluster whose controllers and brokers are killed
	bin/controllerd dev --for 20s --kill-active-every 5s --kill-broker-every 7s -o json

image: ## a Docker image from scratch
	docker build --build-arg VERSION='$(VERSION)' --build-arg COMMIT='$(COMMIT)' --build-arg DATE='$(DATE)' -t controllerd:devel -t 'controllerd:$(VERSION)' .

deploy-check: build ## what deploy/ holds, as far as it goes without systemd, Docker and Kubernetes
	scripts/deploy-check.sh

alerts: ## the alerts and the dashboard in deploy, with promtool
	scripts/alerts.sh

fuzz: ## every fuzz target, FOR=60s each
	scripts/fuzz.sh $(FOR)

verify: lint proto-check tidy-check test sim split-brain smoke deploy-check alerts fuzz ## all that must pass before a change lands

clean: ## remove bin/
	rm -rf bin

bin/tools/%: scripts/tools.sh
	scripts/tools.sh $*
