package report

import "github.com/gosoftroce/rocev2/bench/internal/grid"

// programs: what is unmodified, over "rocev2 run".
func programs() (out []Target) {
	const tool, tcp = "rocev2 perf, the same wire", "iperf3 TCP, one stream"
	for _, op := range []string{"write", "read", "send"} {
		for _, size := range []string{"64KiB", "1MiB"} {
			out = append(out, Target{What: "ib_" + op + "_bw " + size, Against: tool,
				Cell: "programs/ib_" + op + "_bw/" + size, Peer: "programs/perf/" + op + "_bw/" + size, Bound: 0.7})
		}
	}
	for _, op := range []string{"write", "send"} {
		out = append(out, Target{What: "ib_" + op + "_lat", Against: "rocev2 perf " + op + "_lat",
			Cell: "programs/ib_" + op + "_lat/8B", Peer: "programs/perf/" + op + "_lat/8B", AtMost: true, Bound: 2.5})
	}
	out = append(out, Target{What: "ib_send_lat, asleep", Against: "SEND latency, event mode",
		Cell: "programs/ib_send_lat/8B/events", Peer: "programs/ours/send/lat/event", AtMost: true, Bound: 2})
	for _, op := range []string{"write", "read", "send"} {
		out = append(out,
			Target{What: "ib_" + op + "_bw 1MiB, one daemon", Against: tcp,
				Cell: "programs/ib_" + op + "_bw/1MiB/one", Peer: "programs/iperf3/tcp", Bound: 1.5},
			Target{What: "ib_" + op + "_bw 1MiB, one daemon", Against: grid.UCXShm + ", put",
				Cell: "programs/ib_" + op + "_bw/1MiB/one", Peer: "programs/ucx/shm/put_bw/1MiB"})
	}
	return append(out,
		Target{What: "ibv_open_device", Against: "µs", Cell: "programs/ibv_open_device", AtMost: true, Bound: 1000},
		Target{What: "ibv_post_send", Against: "ns", Cell: "programs/ibv_post_send", AtMost: true, Bound: 400},
		Target{What: "OpenMPI, messages of 256 KiB in a ring", Against: "UCX over TCP", Cell: "programs/mpi/verbs", Peer: "programs/mpi/tcp", Bound: 0.5})
}
