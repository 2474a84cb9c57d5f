package report

import (
	"slices"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/grid"
)

// faces returns what is to be reached by the packages that hide queue pairs,
// and by the daemon.
func faces() []Target {
	return slices.Concat(connections(), openConnections(), floods(), messages(), daemon())
}

func f(name string) string { return grid.FacesPrefix + name }

const sameOverTCP = "the same over TCP"

func connections() []Target {
	const block, spin = "round trips of raw UDP, blocking", "round trips of raw UDP, spinning"
	return []Target{
		{What: "connections of cm, one after the other", Against: "a second", Cell: f("cm/connect"), Bound: 5000},
		{What: "connections of rdma, one after the other", Against: "a second", Cell: f("rdma/connect")},
		{What: "connections of rdmanet, one after the other", Against: "a second", Cell: f("rdmanet/connect")},
		{What: "cm: Dial to the answer of a first message", Against: block, Cell: f("cm/dial-to-message"), Peer: f("raw/rtt/block"), Scale: 2, AtMost: true, Bound: 10},
		{What: "cm: Dial to the answer of a first message", Against: spin, Cell: f("cm/dial-to-message"), Peer: f("raw/rtt/spin"), Scale: 2, AtMost: true},
		{What: "cm: Dial to the answer of a first message", Against: sameOverTCP, Cell: f("cm/dial-to-message"), Peer: f("tcp/dial-to-message"), AtMost: true},
		{What: "rdma: Dial to the answer of a first message", Against: block, Cell: f("rdma/dial-to-message"), Peer: f("raw/rtt/block"), Scale: 2, AtMost: true},
		{What: "rdmanet: Dial to the answer of a first message", Against: block, Cell: f("rdmanet/dial-to-message"), Peer: f("raw/rtt/block"), Scale: 2, AtMost: true},
	}
}

func openConnections() (out []Target) {
	const fresh, used = "10000 idle connections", "10000 idle connections that have carried a message"
	for _, face := range []string{"rdma", "rdmanet"} {
		idle := f(face + "/idle/10000")
		out = append(out,
			Target{What: face + ": " + fresh, Against: "MB resident, both processes", Cell: idle, AtMost: true, Bound: 80},
			Target{What: face + ": " + fresh, Against: "MB, shared pages counted once (PSS)", AtMost: true, figure: extra(idle, "both_pss_mb")},
			Target{What: face + ": " + fresh, Against: "MB resident, before memory is given back", AtMost: true, figure: extra(idle, "both_rss_mb_as_is")},
			Target{What: face + ": " + fresh, Against: cell.Percent + ", both processes", AtMost: true, Bound: 0.5, figure: extra(idle, "both_cpu_percent")},
			Target{What: face + ": " + used, Against: "MB resident, both processes", Cell: idle + "/used", AtMost: true},
		)
	}
	return out
}

func floods() (out []Target) {
	for _, face := range []string{"cm", "rdma"} {
		for _, from := range []string{"one", "many", "client"} {
			flood := f(face + "/flood/" + from)
			source := map[string]string{"one": "one source", "many": "many sources", "client": "the client's address"}[from]
			out = append(out,
				Target{What: face + ": the slowest Dial beside 50000 forged requests a second from " + source, Against: "ms", Cell: flood, AtMost: true, Bound: 1000},
				Target{What: face + ": memory that this costs the listener at most", Against: "MB", AtMost: true, figure: extra(flood, "passive_peak_growth_mb")},
			)
		}
	}
	return out
}

func messages() []Target {
	return []Target{
		{What: "rdma: messages of 8 B", Against: "rocev2 perf send_bw", Cell: f("rdma/send/8B"), Peer: f("perf/send_bw/8B"), Bound: 0.9},
		{What: "rdma: messages of 1 MiB, RecvMsg", Against: "rocev2 perf send_bw", Cell: f("rdma/send/1MiB"), Peer: f("perf/send_bw/1MiB"), Bound: 0.9},
		{What: "rdma: messages of 1 MiB, Recv", Against: "rocev2 perf send_bw", Cell: f("rdma/send/1MiB/copy"), Peer: f("perf/send_bw/1MiB")},
		{What: "rdma: messages of 1 MiB, RecvMsg", Against: "SEND 1 MiB of this program", Cell: f("rdma/send/1MiB"), Peer: f("ours/send/1MiB")},
		{What: "rdmanet: stream, by 1 MiB", Against: "rocev2 perf send_bw", Cell: f("rdmanet/stream/1MiB"), Peer: f("perf/send_bw/1MiB"), Bound: 0.8},
		{What: "rdmanet: stream, by 1 MiB", Against: "TCP of package net", Cell: f("rdmanet/stream/1MiB"), Peer: f("tcp/stream/1MiB")},
		{What: "rdma: latency of 8 B", Against: "rocev2 perf send_lat", Cell: f("rdma/lat"), Peer: f("perf/send_lat/8B"), AtMost: true, Bound: 1.3},
		{What: "rdmanet: latency of 8 B", Against: "rocev2 perf send_lat", Cell: f("rdmanet/lat"), Peer: f("perf/send_lat/8B"), AtMost: true, Bound: 1.3},
		{What: "rdmanet: latency of 8 B", Against: "TCP of package net", Cell: f("rdmanet/lat"), Peer: f("tcp/lat"), AtMost: true},
		{What: "HTTP GET of 1 MiB over rdmanet", Against: sameOverTCP, Cell: f("http/rdmanet/get/1MiB"), Peer: f("http/tcp/get/1MiB"), Bound: 1},
		{What: "the raw limit of UDP", Against: "TCP of package net", Cell: f("raw/4140/icrc"), Peer: f("tcp/stream/1MiB")},
		{What: "rocev2 region read of 1 GiB", Against: "rocev2 perf read_bw", Cell: f("region/tool/1GiB"), Peer: f("perf/read_bw/1MiB"), Bound: 0.9},
		{What: "exported region of 1 GiB, CopyTo", Against: "rocev2 perf read_bw", Cell: f("region/copy/1GiB"), Peer: f("perf/read_bw/1MiB"), Bound: 0.9},
		{What: "exported region of 1 GiB, Read", Against: "rocev2 perf read_bw", Cell: f("region/read/1GiB"), Peer: f("perf/read_bw/1MiB"), Bound: 0.9},
	}
}

func daemon() []Target {
	return []Target{
		{What: "rocev2d: GET /metrics with 10000 queue pairs", Against: "ms", Cell: f("rocev2d/metrics"), AtMost: true, Bound: 50},
		{What: "rocev2d: first paint of the page with 1000 queue pairs", Against: "ms", Cell: f("rocev2d/page"), AtMost: true, Bound: 300},
		{What: "rocev2d: idle", Against: cell.Percent, Cell: f("rocev2d/idle"), AtMost: true, Bound: 0.1},
		{What: "rocev2d: idle", Against: "MB resident", AtMost: true, Bound: 20, figure: extra(f("rocev2d/idle"), "rss_mb")},
	}
}

// extra is the median of another measurement of a cell.
func extra(name, key string) func(Rows) Figure {
	return func(rows Rows) Figure {
		r := rows[name]
		if !r.OK() {
			return Figure{Why: absent(r)}
		}
		return figureOf(r.Extra[key])
	}
}
