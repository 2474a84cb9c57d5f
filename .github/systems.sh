#!/usr/bin/env bash
# Tests what every system has, and shows the demo. It needs Go, git, and the
# addresses 127.0.0.1 and 127.0.0.2.
set -eu
cd "$(dirname "$0")/.."
go build ./...
go vet ./...
go test -short ./rocev2/... ./ib ./memreg/... ./qp/... ./hca/... ./verbs/... ./transport/... \
	./fabric/event ./fabric/network ./fabric/adapter ./fabric/worldtest
# The same digests on every system.
go test -run '^Test(Transfer|Permutation)$' ./fabric/lab
go run ./cmd/rocev2 demo
