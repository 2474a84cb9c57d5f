#!/usr/bin/env bash
# fuzz.sh TIME: runs every fuzz target of the module for TIME (10s, 5m …).
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:?usage: fuzz.sh TIME}
count=0
for pkg in $(go list ./...); do
	for target in $(go test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
		echo "== $pkg $target ($time)"
		go test "$pkg" -run '^$' -fuzz "^$target\$" -fuzztime "$time"
		count=$((count + 1))
	done
done
if [ "$count" -eq 0 ]; then
	echo "no fuzz target found" >&2
	exit 1
fi
echo "$count fuzz targets ran $time each"
