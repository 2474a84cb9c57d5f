#!/usr/bin/env bash
# fuzz.sh TIME: runs every fuzz target of the modules of the product and of e2e
# for TIME (10s, 5m, or a number of executions such as 20000x).
set -euo pipefail
cd "$(dirname "$0")/../.."
time=${1:?usage: fuzz.sh TIME}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
count=0
for module in . e2e; do for pkg in $(go list -C "$module" ./...); do
	for target in $(go test -C "$module" -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
		echo "== $pkg $target ($time)"
		count=$((count + 1))
		if go test -C "$module" "$pkg" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x 2>&1 | tee "$log" | tail -n 3; then
			continue
		fi
		# The fuzzer may end its time with this instead of success; a finding
		# names the input that it has kept.
		if grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"; then
			echo "(the time was over; nothing was found)"
			continue
		fi
		cat "$log"
		exit 1
	done
done; done
if [ "$count" -eq 0 ]; then
	echo "no fuzz target found" >&2
	exit 1
fi
echo "$count fuzz targets ran $time each, nothing found"
