#!/usr/bin/env bash
# marking-net.sh: two senders, a router and a receiver in network namespaces of
# this host. The router's cable to the receiver carries 1 Gb/s. It has a queue
# of 768 KB, and marks ECN-capable packets before that is full. Needs root, ip
# and tc (iproute2), nft (nftables) and ethtool.
#
#	marking-net.sh up
#	marking-net.sh run TEST [FLAG]...   both senders at once: rocev2 perf TEST, which is
#	                                    write_bw, send_bw or read_bw, with the flags on
#	                                    the side that sends data
#	marking-net.sh down
#
# Variables: ROCEV2 the program (bin/rocev2 of the repository), DURATION seconds of a run (4), OUT a
# directory that keeps what the programs print, NET a name for the namespaces
# (rocev2), TCLASS (106: DSCP 26, ECN-capable), FLOWS (2; 4: each sender runs the
# test twice, as a2 and b2), QUEUE (1: look at the router's queue 50 times a second,
# and print how long it was in the mean, and at most).
set -euo pipefail
net=${NET:-rocev2}
rate=1000 # Mb/s of the router's cable to the receiver
queue=768 # KB
# The marks are of a virtual queue: a bucket that is emptied at 99 % of the
# rate, counted in packets of path MTU 4096, of 4154 bytes. Who finds 32 in it
# is marked.
mark="limit rate over $((rate * 1000000 * 99 / 100 / 8 / 4154))/second burst 32 packets"

die() {
	echo "marking-net.sh: $*" >&2
	exit 1
}

in_ns() {
	local ns=$1
	shift
	ip netns exec "$net-$ns" "$@"
}

# stop ends the programs in the namespaces: a server has no client any more when
# one was started wrongly.
stop() {
	local ns
	for ns in a b c; do ip netns pids "$net-$ns" 2>/dev/null | xargs -r kill 2>/dev/null || true; done
}

down() {
	local ns
	stop
	for ns in a b c router; do ip netns delete "$net-$ns" 2>/dev/null || true; done
}

# cable NS SUBNET lays one from the router to NS. Without segmentation offload
# the queue sees packets. With receive offload each end hands packets on in the
# order in which they came, whichever processor they came by.
cable() {
	local ns=$1 subnet=198.18.$2
	ip netns add "$net-$ns"
	ip -n "$net-$ns" link set lo up
	ip -n "$net-router" link add "to-$ns" mtu 4200 type veth peer name eth0 mtu 4200 netns "$net-$ns"
	ip -n "$net-router" addr add "$subnet.1/24" dev "to-$ns"
	ip -n "$net-$ns" addr add "$subnet.2/24" dev eth0
	in_ns router ethtool -K "to-$ns" tso off gso off tx-udp-segmentation off gro on
	in_ns "$ns" ethtool -K eth0 tso off gso off tx-udp-segmentation off gro on
	ip -n "$net-router" link set "to-$ns" up
	ip -n "$net-$ns" link set eth0 up
	ip -n "$net-$ns" route add default via "$subnet.1"
}

up() {
	down
	ip netns add "$net-router"
	cable a 1
	cable b 2
	cable c 3
	local n
	for n in 3 4 5; do ip -n "$net-c" addr add 198.18.3.$n/24 dev eth0; done # a device for each flow
	ip -n "$net-a" addr add 198.18.1.3/24 dev eth0
	ip -n "$net-b" addr add 198.18.2.3/24 dev eth0
	in_ns router sysctl -qw net.ipv4.ip_forward=1
	tc -n "$net-router" qdisc add dev to-c root tbf rate ${rate}mbit burst 32kb limit ${queue}kb
	in_ns router nft "add table ip marks
		add chain ip marks forward { type filter hook forward priority 0; }
		add rule ip marks forward oifname to-c ip ecn ect0 $mark ip ecn set ce counter"
}

# counters prints what the router has sent, dropped and marked, in packets.
counters() {
	tc -n "$net-router" -s qdisc show dev to-c |
		sed -n 's/.* \([0-9]*\) pkt (dropped \([0-9]*\),.*/\1 \2/p' | tr '\n' ' '
	in_ns router nft list table ip marks | sed -n 's/.*counter packets \([0-9]*\).*/\1/p'
}

# perf NS FILE FLAG... runs one. It has priority over other work of the host: so
# the queue is that of the network, and not that of the processors.
perf() {
	local ns=$1 file=$2
	shift 2
	in_ns "$ns" $realtime "$rocev2" perf "$op" -s 1M -t 16 -D "$duration" --tclass "$tclass" -e --json --stats=json "$@" \
		>"$out/$file" 2>"$out/$file.err"
}

# ends FLOW sets the namespace of a sender, and the addresses of its device and
# of the one at the receiver. Flow b2 is the second one of sender b.
ends() {
	local n=1 k=${1:1}
	ns=${1:0:1} k=${k:-1}
	[ "$ns" = a ] || n=2
	data=198.18.$n.$((k + 1)) sink=198.18.3.$((n + 2 * k - 1))
}

# serve FLOW FLAG... starts the server of a pair: of READs the side that sends
# data.
serve() {
	local from=$1 ns data sink
	shift
	ends "$from"
	case $op in
	read_bw) perf "$ns" "$from" -d "$data" "$@" ;;
	*) perf c "$from.sink" -d "$sink" ;;
	esac
}

# dial FLOW FLAG... runs the client of a pair.
dial() {
	local from=$1 ns data sink
	shift
	ends "$from"
	case $op in
	read_bw) perf c "$from.sink" -d "$sink" "$data" ;;
	*) perf "$ns" "$from" -d "$data" "$sink" "$@" ;;
	esac
}

# watch writes how many bytes are in the router's queue, again and again.
watch() {
	while sleep 0.02; do
		tc -n "$net-router" -s qdisc show dev to-c | sed -n 's/.*backlog \([0-9]*\)\([KM]\?\)b.*/\1 \2/p'
	done
}

run() {
	op=${1:-}
	case $op in
	write_bw | send_bw | read_bw) shift ;;
	*) die "run takes write_bw, send_bw or read_bw, and flags of rocev2 perf, not \"$op\"" ;;
	esac
	[ -e "/run/netns/$net-router" ] || die "there is no network $net: marking-net.sh up makes it"
	rocev2=${ROCEV2:-$(dirname "$0")/../../bin/rocev2}
	[ -x "$rocev2" ] || die "there is no program $rocev2: make build, or set ROCEV2"
	duration=${DURATION:-4} tclass=${TCLASS:-106} out=${OUT:-$(mktemp -d)}
	realtime=
	! chrt -r 1 true 2>/dev/null || realtime="chrt -r 1"
	mkdir -p "$out"
	rm -f "$out"/*.err
	local before after from jobs="" job bad= flows="a b" watching=
	case ${FLOWS:-2} in
	2) ;;
	4) flows="a b a2 b2" ;;
	*) die "FLOWS is 2 or 4, not \"$FLOWS\"" ;;
	esac
	before=$(counters)
	trap stop EXIT
	for from in $flows; do
		serve $from "$@" &
		jobs="$jobs $!"
	done
	for _ in $(seq 600); do # both clients begin at once
		[ "$(cat "$out"/*.err 2>/dev/null | grep -c '^waiting')" -lt "${FLOWS:-2}" ] || break
		for job in $jobs; do kill -0 "$job" 2>/dev/null || bad=1; done
		[ -z "$bad" ] || die "a program failed: $(sort -u "$out"/*.err)"
		sleep 0.05
	done
	for from in $flows; do
		dial $from "$@" &
		jobs="$jobs $!"
	done
	if [ -n "${QUEUE:-}" ]; then
		watch >"$out/queue" &
		watching=$!
	fi
	for _ in $jobs; do wait -n || { bad=1 && break; }; done
	[ -z "$watching" ] || kill $watching
	after=$(counters)
	[ -z "$bad" ] || die "a program failed: $(grep -hv '^waiting' "$out"/*.err | sort -u)"
	for from in $flows; do
		LC_ALL=C printf '%s: %.3f Gb/s\n' $from "$(sed -n 's/.*"gbps":\([0-9.]*\).*/\1/p' "$out/$from" "$out/$from.sink" | head -n 1)"
	done
	set -- $before $after
	echo "router: $(($4 - $1)) packets sent, $(($5 - $2)) dropped, $(($6 - $3)) marked"
	[ -z "$watching" ] || LC_ALL=C awk '{ n = $1 * ($2 == "M" ? 1024 : $2 == "K" ? 1 : 1 / 1024) }
		n > 0 { sum += n; k++; if (n > most) most = n }
		END { printf "queue: %.0f KB in the mean, %.0f KB at most\n", k ? sum / k : 0, most }' "$out/queue"
	[ -n "$realtime" ] || echo "priority: none"
	[ -n "${OUT:-}" ] || rm -r "$out"
}

[ "$(id -u)" = 0 ] || die "not root: network namespaces need it"
for tool in ip tc nft ethtool; do
	command -v $tool >/dev/null || die "there is no $tool (on Debian: apt-get install iproute2 nftables ethtool)"
done
case ${1:-} in
up | down) "$1" ;;
run) shift && run "$@" ;;
*) die "usage: marking-net.sh up | run TEST [FLAG]... | down" ;;
esac
