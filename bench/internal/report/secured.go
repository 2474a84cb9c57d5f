package report

import (
	"github.com/gosoftroce/rocev2/bench/internal/grid"
	"github.com/gosoftroce/rocev2/bench/internal/stats"
)

// secured: what sealing packets costs.
func secured() []Target {
	const clear = "the same in clear"
	at := func(name string) string { return grid.SecuredPrefix + name }
	return []Target{
		{What: "WRITE 1 MiB, AES-GCM-128", Against: clear, Cell: at("write/1MiB/gcm128"), Peer: at("write/1MiB/clear"), Bound: 0.45},
		{What: "WRITE 1 MiB, AES-GCM-128", Against: grid.GoTLS + ", one stream", Cell: at("write/1MiB/gcm128"), Peer: at("tls/1MiB"), Bound: 1},
		{What: "WRITE 1 MiB, AES-GMAC-128", Against: clear, Cell: at("write/1MiB/gmac128"), Peer: at("write/1MiB/clear"), Bound: 0.65},
		{What: "WRITE 8 B, AES-GCM-128", Against: clear, Cell: at("write/8B/gcm128"), Peer: at("write/8B/clear"), Bound: 0.7},
		{What: "WRITE 8 B, AES-GMAC-128", Against: clear, Cell: at("write/8B/gmac128"), Peer: at("write/8B/clear"), Bound: 0.7},
		{What: "WRITE latency, AES-GCM-128", Against: "µs more than in clear", AtMost: true, Bound: 0.5, figure: more(at("write/lat/gcm128"), at("write/lat/clear"))},
		{What: "WRITE latency, AES-GMAC-128", Against: "µs more than in clear", AtMost: true, Bound: 0.5, figure: more(at("write/lat/gmac128"), at("write/lat/clear"))},
		{What: "heap objects per sealed 8-byte WRITE", Against: "both sides together", AtMost: true, Bound: 0.001, figure: allocations(at("write/8B/gcm128"))},
	}
}

// more is the difference of two cells that took turns, round by round.
func more(name, than string) func(Rows) Figure {
	return func(rows Rows) Figure {
		a, b := rows[name], rows[than]
		if !a.OK() {
			return Figure{Why: absent(a)}
		}
		if !b.OK() {
			return Figure{Why: absent(b)}
		}
		x, y := a.Values(), b.Values()
		var d []float64
		for i := range min(len(x), len(y)) {
			d = append(d, x[i]-y[i])
		}
		s := stats.Of(d)
		return Figure{Value: s.Median, Min: s.Min, Max: s.Max}
	}
}
