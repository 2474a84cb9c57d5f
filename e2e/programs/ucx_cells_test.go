//go:build linux

package programs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/e2e/guest"
)

var ucxNeeds = []guest.Need{{File: "ucx_perftest", Package: "ucx-utils"}}

// ucxCells are UCX by itself: its transports (uct) and its protocols (ucp).
func ucxCells() []*cell {
	list := []*cell{{
		group: "ucx-utils", name: "ucx_info -d", kinds: alone, needs: ucxNeeds, server: program("ucx_info", "-d"),
		check: func(st *stage) (string, error) {
			return "", st.shows("Transport: rc_verbs", "Transport: ud_verbs", "Device: "+st.server.dev+":1")
		},
	}}
	add := func(env []string, flags ...string) {
		side := func(st *stage, s *site, peer ...string) []string {
			argv := append([]string{"env", "UCX_NET_DEVICES=" + s.dev + ":1", "UCX_WARN_UNUSED_ENV_VARS=n"}, env...)
			if st.kind >= kernelServes {
				// UCX takes the SL of a completion for the
				// kind of RoCE. Linux does not tell it so.
				argv = append(argv, "UCX_UD_VERBS_ETH_DGID_CHECK=n")
			}
			argv = append(append(argv, "ucx_perftest", "-p", strconv.Itoa(st.port)), flags...)
			if len(env) == 0 {
				argv = append(argv, "-d", s.dev+":1")
			}
			return append(argv, peer...)
		}
		list = append(list, &cell{
			group: "ucx-utils", name: strings.Join(append(append(env[:len(env):len(env)], "ucx_perftest"), flags...), " "), kinds: every, needs: ucxNeeds,
			server: func(st *stage) []string { return side(st, st.server) },
			client: func(st *stage) []string { return side(st, st.client, st.server.addr) },
			ready:  listening,
			check: func(st *stage) (string, error) {
				if !strings.Contains(st.clientOut.Stdout, "Final:") {
					return "", fmt.Errorf("no result:\n%s", st.clientOut.Stdout)
				}
				return "", nil
			},
		})
	}
	for _, tl := range []string{"rc_verbs", "ud_verbs"} {
		add(nil, "-x", tl, "-t", "am_lat", "-n", "1000", "-w", "100")
		add(nil, "-x", tl, "-t", "am_bw", "-n", "1000", "-w", "100", "-s", "1024", "-D", "bcopy")
	}
	for _, test := range []string{"put_lat", "put_bw", "fadd", "cswap", "add_lat"} {
		add(nil, "-x", "rc_verbs", "-t", test, "-n", "1000", "-w", "100")
	}
	add(nil, "-x", "rc_verbs", "-t", "get", "-n", "200", "-w", "20", "-s", "65536", "-D", "zcopy")
	for _, tls := range []string{"UCX_TLS=rc_v,self", "UCX_TLS=ud_v,self"} {
		add([]string{tls}, "-t", "tag_lat", "-n", "500", "-w", "50")
		add([]string{tls}, "-t", "tag_bw", "-n", "50", "-w", "5", "-s", "1048576")
		add([]string{tls}, "-t", "ucp_am_bw", "-n", "200", "-w", "20", "-s", "16384")
		add([]string{tls}, "-t", "stream_bw", "-n", "200", "-w", "20", "-s", "16384")
	}
	for _, test := range []string{"ucp_put_bw", "ucp_get", "ucp_fadd", "ucp_cswap"} {
		add([]string{"UCX_TLS=rc_v,self"}, "-t", test, "-n", "200", "-w", "20")
	}
	return list
}

var mpiNeeds = []guest.Need{
	{File: "mpirun", Package: "openmpi-bin"}, {File: "mpicc", Package: "libopenmpi-dev"}, {File: "gcc", Package: "gcc"},
	{File: "/usr/include/stdio.h", Package: "libc6-dev"},
}

// mpiCells are OpenMPI over UCX. The programs are in testdata/mpi, and check
// every byte.
func mpiCells() (list []*cell) {
	for _, program := range []string{"ring", "allreduce", "alltoall"} {
		for _, tls := range []string{"rc_v", "ud_v"} {
			for _, ranks := range []int{2, 4} {
				list = append(list, &cell{
					group: "openmpi-bin", name: fmt.Sprintf("%s, %d ranks, UCX_TLS=%s", program, ranks, tls),
					kinds: ours, needs: mpiNeeds, bare: true, limit: 2 * time.Minute,
					server: func(st *stage) []string { return mpirun(st, tls, ranks, filepath.Join(st.dir, program)) },
					check: func(st *stage) (string, error) {
						return "", st.shows(program + ": all right")
					},
				})
			}
		}
	}
	return list
}

// netpipeCells are a benchmark of MPI that Debian has; it has neither OSU's nor
// Intel's. It looks at the bytes that arrive.
func netpipeCells() (list []*cell) {
	for _, tls := range []string{"rc_v", "ud_v"} {
		list = append(list, &cell{
			group: "netpipe-openmpi", name: "NPopenmpi -u 65536 -i, UCX_TLS=" + tls,
			kinds: ours, bare: true, limit: 2 * time.Minute,
			needs: append(mpiNeeds[:len(mpiNeeds):len(mpiNeeds)], guest.Need{File: "NPopenmpi", Package: "netpipe-openmpi"}),
			server: func(st *stage) []string {
				return mpirun(st, tls, 2, "NPopenmpi", "-u", "65536", "-i", "-o", filepath.Join(st.dir, "np.out"))
			},
			check: func(st *stage) (string, error) {
				return "", intact(&st.serverOut)
			},
		})
	}
	return list
}

// intact is what NetPIPE says of the bytes that it gets.
func intact(r *guest.Result) error {
	if out := r.Stdout + r.Stderr; !strings.Contains(out, "Integrity check passed") || strings.Contains(out, "failed") {
		return fmt.Errorf("not done, or other bytes than were sent:\n%s", out)
	}
	return nil
}

// mpirun starts ranks on the two sides in turn.
func mpirun(st *stage, tls string, ranks int, program ...string) []string {
	argv := []string{"env", "HOME=" + st.dir, "TMPDIR=" + st.dir, "LC_ALL=C", "mpirun", "--oversubscribe", "--bind-to", "none",
		"--mca", "pml", "ucx", "--mca", "btl", "self", "--mca", "osc", "^ucx", "--mca", "oob_tcp_if_include", "lo"}
	if os.Geteuid() == 0 {
		if _, unprivileged := st.server.node.(guest.Local); !unprivileged {
			argv = append(argv, "--allow-run-as-root")
		}
	}
	for rank := range ranks {
		s := []*site{st.server, st.client}[rank%2]
		if rank > 0 {
			argv = append(argv, ":")
		}
		argv = append(argv, "-np", "1")
		argv = append(argv, s.wrap...)
		argv = append(argv, "env", "UCX_TLS="+tls+",self", "UCX_NET_DEVICES="+s.dev+":1")
		argv = append(argv, program...)
	}
	return argv
}

var fabricNeeds = []guest.Need{{File: "fi_pingpong", Package: "libfabric-bin"}}

// fabricCells are libfabric's provider verbs. fabtests are not packaged.
func fabricCells() []*cell {
	list := []*cell{{
		group: "libfabric-bin", name: "fi_info -p verbs", kinds: alone, needs: fabricNeeds, server: program("fi_info", "-p", "verbs"),
		check: func(st *stage) (string, error) {
			return "", st.shows("FI_EP_MSG", "FI_PROTO_RDMA_CM_IB_RC", st.server.dev)
		},
	}}
	for _, p := range [][]string{
		{"-p", "verbs", "-e", "msg"},
		{"-p", "verbs;ofi_rxm", "-e", "rdm"},
		{"-p", "verbs;ofi_rxm", "-e", "rdm", "-m", "tagged"},
	} {
		side := func(s *site, own ...string) []string {
			argv := append([]string{"fi_pingpong", "-c", "-I", "50"}, p...)
			if p[1] == "verbs" {
				argv = append(argv, "-d", s.dev)
			}
			return append(argv, own...)
		}
		kinds := every
		if p[1] != "verbs" {
			kinds = ours // in a guest RxM opens no endpoint
		}
		list = append(list, &cell{
			group: "libfabric-bin", name: "fi_pingpong -c " + strings.Join(p, " "), kinds: kinds, needs: fabricNeeds, limit: 2 * time.Minute,
			server: func(st *stage) []string { return side(st.server, "-B", strconv.Itoa(st.port)) },
			client: func(st *stage) []string { return side(st.client, "-P", strconv.Itoa(st.port), st.server.addr) },
			ready:  listening,
			check: func(st *stage) (string, error) {
				if !strings.Contains(st.clientOut.Stdout, "1m") {
					return "", fmt.Errorf("no row for 1 MiB:\n%s", st.clientOut.Stdout)
				}
				return "", nil
			},
		})
	}
	return list
}
