package report

import (
	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/grid"
)

// programs: what is unmodified, over "rocev2 run". Each is to be reached on two
// addresses, and on one that both programs share.
func programs() (out []Target) {
	add := func(t Target) {
		out = append(out, t)
		t.What, t.Cell = t.What+", one address", t.Cell+"/one"
		out = append(out, t)
	}
	for _, op := range []string{"write", "read", "send"} {
		for _, size := range []string{"64KiB", "1MiB"} {
			add(Target{What: "ib_" + op + "_bw " + size, Against: "rocev2 perf, the same wire",
				Cell: "programs/ib_" + op + "_bw/" + size, Peer: "programs/perf/" + op + "_bw/" + size, Bound: 0.95})
		}
	}
	add(Target{What: "ib_send_bw 8 bytes, message rate", Against: "rocev2 perf send_bw",
		Cell: "programs/ib_send_bw/8B", Peer: "programs/perf/send_bw/8B", Bound: 0.8})
	lat := func(op string, bound float64) {
		add(Target{What: "ib_" + op + "_lat", Against: "rocev2 perf " + op + "_lat",
			Cell: "programs/ib_" + op + "_lat/8B", Peer: "programs/perf/" + op + "_lat/8B", AtMost: true, Bound: bound})
	}
	lat("send", 1.3)
	lat("write", 1.5)
	add(Target{What: "ib_send_lat, asleep", Against: "SEND latency, event mode",
		Cell: "programs/ib_send_lat/8B/events", Peer: "programs/ours/send/lat/event", AtMost: true, Bound: 1.5})
	add(Target{What: "SEND latency, asleep in epoll_wait", Against: "SEND latency, event mode",
		Cell: "programs/epoll/8B", Peer: "programs/ours/send/lat/event", AtMost: true, Bound: 3})
	for _, op := range []string{"write", "read", "send"} {
		bw := "programs/ib_" + op + "_bw/1MiB/one"
		out = append(out,
			Target{What: "ib_" + op + "_bw 1MiB, one address", Against: "iperf3 TCP, one stream", Cell: bw, Peer: "programs/iperf3/tcp"},
			Target{What: "ib_" + op + "_bw 1MiB, one address", Against: grid.UCXShm + ", put", Cell: bw, Peer: "programs/ucx/shm/put_bw/1MiB"})
	}
	out = append(out,
		Target{What: "an idle program", Against: "MB resident", Cell: "programs/idle", AtMost: true, Bound: 8},
		Target{What: "the first ibv_open_device", Against: "µs", Cell: "programs/ibv_open_device/first", AtMost: true, Bound: 2500},
		Target{What: "ibv_open_device", Against: "µs", Cell: "programs/ibv_open_device", AtMost: true, Bound: 2500},
		Target{What: "ibv_post_send", Against: "ns", Cell: "programs/ibv_post_send", AtMost: true},
		Target{What: "ibv_poll_cq, empty", Against: "ns", Cell: "programs/ibv_poll_cq", AtMost: true, Bound: 200})
	for _, size := range grid.MPISizes {
		for _, test := range []string{"ring", "pingpong"} {
			name := "programs/mpi/" + test + "/" + cell.Bytes(size)
			add(Target{What: "OpenMPI, " + test + " of " + cell.Bytes(size), Against: "UCX over TCP",
				Cell: name + "/verbs", Peer: name + "/tcp", AtMost: test == "pingpong", Bound: 1})
		}
	}
	return out
}
