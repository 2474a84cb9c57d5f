package report

import "github.com/gosoftroce/rocev2/bench/internal/grid"

// owned: what sharing a port costs. Latencies are the inverse of rates.
func owned() (out []Target) {
	const alone = "two addresses without an owner"
	for _, c := range []struct {
		what, cell string
		rate       bool
	}{
		{"rocev2 perf write_bw 1 MiB", "perf/write_bw/1MiB", true},
		{"rocev2 perf write_bw 8 bytes, message rate", "perf/write_bw/8B", true},
		{"rocev2 perf send_lat 8 bytes", "perf/send_lat/8B", false},
	} {
		for _, in := range [][2]string{{"/one", ", one address"}, {"/owners", ", an owner each"}} {
			t := Target{What: c.what + in[1], Against: alone, Cell: grid.OwnerPrefix + c.cell + in[0], Peer: grid.OwnerPrefix + c.cell, Bound: 0.97}
			if !c.rate {
				t.AtMost, t.Bound = true, 1/t.Bound
			}
			out = append(out, t)
		}
	}
	const one = "64 queue pairs of one process"
	return append(out,
		Target{What: "64 processes on one address, WRITE 64 KiB", Against: one, Cell: grid.OwnerPrefix + "many/write/64KiB/processes", Peer: grid.OwnerPrefix + "many/write/64KiB", Bound: 0.8},
		Target{What: "64 processes on one address, WRITE 8 bytes, message rate", Against: one, Cell: grid.OwnerPrefix + "many/write/8B/processes", Peer: grid.OwnerPrefix + "many/write/8B", Bound: 0.8},
		Target{What: "connections a second, cm, through owners", Against: alone, Cell: grid.OwnerPrefix + "cm/dial/owners", Peer: grid.OwnerPrefix + "cm/dial"},
		Target{What: "from Dial to the first message, cm, through owners", Against: alone, Cell: grid.OwnerPrefix + "cm/dial-to-message/owners", Peer: grid.OwnerPrefix + "cm/dial-to-message", AtMost: true})
}
