//go:build linux

package programs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
					server: func(st *stage) []string { return mpirun(st, program, tls, ranks) },
					check: func(st *stage) (string, error) {
						return "", st.shows(program + ": all right")
					},
				})
			}
		}
	}
	return list
}

// mpirun starts ranks on the two sides in turn.
func mpirun(st *stage, program, tls string, ranks int) []string {
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
		argv = append(argv, "env", "UCX_TLS="+tls+",self", "UCX_NET_DEVICES="+s.dev+":1", filepath.Join(st.dir, program))
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

var pyverbsNeeds = []guest.Need{
	{File: "/usr/bin/python3", Package: "python3"}, {File: "/usr/lib/python3/dist-packages/pyverbs", Package: "python3-pyverbs"},
	{File: "/usr/share/doc/rdma-core", Package: "rdma-core"},
}

// A kernel's rxe passes so many of the tests that are for no vendor.
const pyverbsPasses = 97

// pyverbsCells are the tests of rdma-core.
func pyverbsCells() []*cell {
	return []*cell{{
		group: "python3-pyverbs", name: "run_tests.py", kinds: alone, needs: pyverbsNeeds, limit: 10 * time.Minute,
		server: func(st *stage) []string {
			return []string{"sh", "-c", `cd "$1" && /usr/bin/python3 run_tests.py --dev "$2" --gid "$3" -v; test $? -le 1`, "sh",
				filepath.Join(st.dir, "pyverbs"), st.server.dev, strconv.Itoa(st.server.gid)}
		},
		check: countPyverbs,
	}}
}

var (
	pyverbsRan    = regexp.MustCompile(`(?m)^Ran (\d+) tests? in`)
	pyverbsResult = regexp.MustCompile(`(?m)^\S+ \(\S+\).*?\.\.\. (ok|FAIL|ERROR|skipped)|^.*\.\.\. (ok|FAIL|ERROR|skipped)`)
)

func countPyverbs(st *stage) (string, error) {
	out := st.serverOut.Stderr
	n := map[string]int{}
	for _, m := range pyverbsResult.FindAllStringSubmatch(out, -1) {
		n[m[1]+m[2]]++
	}
	note := fmt.Sprintf("%d pass, %d skipped, %d fail", n["ok"], n["skipped"], n["FAIL"]+n["ERROR"])
	if !pyverbsRan.MatchString(out) {
		return note, fmt.Errorf("the run has ended early: %s", note)
	}
	if n["ok"] < pyverbsPasses {
		return note, fmt.Errorf("%s; expected at least %d to pass", note, pyverbsPasses)
	}
	return note, nil
}
