//go:build linux

package programs

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/gosoftroce/rocev2/e2e/guest"
)

const rspreload = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"

// overRsockets is a program of TCP whose sockets are rsockets.
func overRsockets(argv ...string) []string {
	return append([]string{"sh", "-c", `LD_PRELOAD="` + rspreload + ` $LD_PRELOAD" exec "$@"`, "sh"}, argv...)
}

// preloadedCells are programs of TCP under librspreload. Their packages are not
// in a guest. A server whose socket is an rsocket does not listen for TCP, so
// that nothing can pass by it.
func preloadedCells() []*cell {
	var list []*cell
	add := func(name, pkg, file string, server, client func(st *stage, at, port string) []string) *cell {
		over := func(side func(st *stage, at, port string) []string) func(st *stage, at, port string) []string {
			return func(st *stage, at, port string) []string { return overRsockets(side(st, at, port)...) }
		}
		c := managerCell(name, ours, over(server), over(client))
		c.group, c.needs = "librdmacm1 (librspreload)", []guest.Need{{File: rspreload, Package: "librdmacm1"}, {File: file, Package: pkg}}
		list = append(list, c)
		return c
	}
	c := add("iperf -n 20M", "iperf", "iperf",
		func(_ *stage, at, port string) []string { return []string{"iperf", "-s", "-B", at, "-p", port} },
		func(_ *stage, at, port string) []string { return []string{"iperf", "-c", at, "-p", port, "-n", "20M"} })
	c.endless = true
	c.check = func(st *stage) (string, error) {
		if !strings.Contains(st.clientOut.Stdout, "20.0 MBytes") {
			return "", fmt.Errorf("not done:\n%s", st.clientOut.Stdout)
		}
		return "", nil
	}
	c = add("NPtcp -u 8192 -i", "netpipe-tcp", "NPtcp",
		func(_ *stage, _, port string) []string { return []string{"NPtcp", "-P", port, "-u", "8192", "-i"} },
		func(st *stage, at, port string) []string {
			return []string{"NPtcp", "-h", at, "-P", port, "-u", "8192", "-i", "-o", filepath.Join(st.dir, "np.out")}
		})
	c.check = func(st *stage) (string, error) { return "", intact(&st.clientOut) }
	list = append(list, webCell())
	c = add("iperf3", "iperf3", "iperf3",
		func(_ *stage, at, port string) []string { return []string{"iperf3", "-s", "-1", "-B", at, "-p", port} },
		func(_ *stage, at, port string) []string { return []string{"iperf3", "-c", at, "-p", port, "-n", "20M"} })
	c.known = "sends 128 KiB, of which its server gets nothing. So it is with Linux's Soft-RoCE, too"
	return list
}

// webCell carries a file by HTTP. The server forks for each connection, for
// which librspreload connects by TCP first; that makes few segments. Python's
// server does not do: rsocket refuses SOCK_CLOEXEC, so its sockets stay TCP's.
func webCell() *cell {
	const most = 40 // as TCP, the file has more
	forks := func(argv ...string) []string {
		return append([]string{"env", "RDMAV_FORK_SAFE=1"}, overRsockets(argv...)...)
	}
	c := managerCell("curl, busybox httpd", ours,
		func(st *stage, at, port string) []string {
			return forks("busybox", "httpd", "-f", "-p", at+":"+port, "-h", st.dir)
		},
		func(st *stage, at, port string) []string {
			return forks("curl", "-sS", "--max-time", "30", "-o", filepath.Join(st.dir, "copy"), "http://"+at+":"+port+"/file")
		})
	c.group, c.ready, c.retry, c.endless = "librdmacm1 (librspreload)", listening, false, true
	c.needs = []guest.Need{{File: rspreload, Package: "librdmacm1"}, {File: "curl", Package: "curl"}, {File: "busybox", Package: "busybox"}}
	c.check = func(st *stage) (string, error) {
		if st.segments > most {
			return "", fmt.Errorf("%d segments of TCP: it is not over rsockets", st.segments)
		}
		return "", compare(filepath.Join(st.dir, "copy"))
	}
	return c
}

// packageOf is the package of a group.
func packageOf(group string) string {
	name, _, _ := strings.Cut(group, " ")
	return name
}
