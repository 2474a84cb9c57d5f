#!/usr/bin/env bash
# demo-daemon.sh BIN: starts rocev2d of the directory BIN as a newcomer would,
# uses what it exports, and ends it.
set -euo pipefail
bin=${1:?usage: demo-daemon.sh DIRECTORY}
addr=${DEMO_ADDRESS:-127.0.0.4}
log=$(mktemp)
daemon=
trap '[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true; rm -f "$log"' EXIT

# show prints a command and runs it.
show() {
	echo "\$ $*"
	"$@"
}

echo
echo "A device as a service: rocev2d exports 16 MiB of memory, which other processes use."
echo
echo "\$ rocev2d --device $addr --region 'scratch=16MiB;write' &"
"$bin/rocev2d" --device "$addr" --region 'scratch=16MiB;write' --admin 127.0.0.1:0 2>"$log" &
daemon=$!
for _ in $(seq 100); do
	grep -q 'msg=ready' "$log" && break
	if ! kill -0 "$daemon" 2>/dev/null; then
		cat "$log" >&2
		exit 1
	fi
	sleep 0.1
done
grep -q 'msg=ready' "$log" || { cat "$log" >&2; exit 1; }

PATH="$bin:$PATH"
show rocev2 region ls "$addr"
echo "\$ echo 'hello, memory' | rocev2 region write $addr/scratch"
echo 'hello, memory' | rocev2 region write "$addr/scratch"
show rocev2 region read "$addr/scratch" --length 14 -q
show rocev2 region add "$addr/scratch" 4096 1
show rocev2 region read "$addr/scratch" -o /dev/null
url=$(sed -n 's/.*url=\(http[^ ]*\).*/\1/p' "$log" | head -n 1)
echo "It shows what it does at $url (page, /metrics, JSON) while it runs."

kill -TERM "$daemon"
wait "$daemon"
daemon=
echo "It has disconnected its clients and ended."
