//go:build linux

package programs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/e2e/guest"
)

// program is a side that is the same whatever the stage.
func program(argv ...string) func(*stage) []string {
	return func(*stage) []string { return argv }
}

// deviceCells show the device.
func deviceCells() []*cell {
	return []*cell{
		{
			group: "ibverbs-utils", name: "ibv_devices", kinds: alone, short: true, server: program("ibv_devices"),
			check: func(st *stage) (string, error) { return "", st.shows(st.server.dev) },
		},
		{
			group: "ibverbs-utils", name: "ibv_devinfo -v", kinds: alone, short: true, server: program("ibv_devinfo", "-v"),
			check: func(st *stage) (string, error) {
				return "", st.shows("PORT_ACTIVE", "Ethernet", "RoCE v2", "max_mr_size", "active_mtu")
			},
		},
		{
			group: "ibverbs-utils", name: "ibv_asyncwatch", kinds: alone, endless: true, ready: says("async event FD"),
			server: func(st *stage) []string { return []string{"stdbuf", "-oL", "ibv_asyncwatch", "-d", st.server.dev} },
		},
	}
}

// shows looks for words in what the server has said.
func (st *stage) shows(words ...string) error {
	for _, w := range words {
		if !strings.Contains(st.serverOut.Stdout, w) {
			return fmt.Errorf("it does not show %q:\n%s", w, st.serverOut.Stdout)
		}
	}
	return nil
}

// pingpongCells are the ping-pongs of rdma-core.
func pingpongCells() []*cell {
	var list []*cell
	add := func(tool string, short bool, flags ...string) {
		side := func(st *stage, s *site, peer ...string) []string {
			argv := []string{"ibv_" + tool + "_pingpong", "-d", s.dev, "-g", strconv.Itoa(s.gid), "-p", strconv.Itoa(st.port), "-n", "200"}
			if tool == "srq" {
				argv[len(argv)-1] = "500" // of 16 queue pairs together
			}
			return append(append(argv, flags...), peer...)
		}
		list = append(list, &cell{
			group: "ibverbs-utils", name: strings.Join(append([]string{"ibv_" + tool + "_pingpong"}, flags...), " "), kinds: every, short: short,
			server: func(st *stage) []string { return side(st, st.server) },
			client: func(st *stage) []string { return side(st, st.client, st.server.addr) },
			ready:  listening,
			check: func(st *stage) (string, error) {
				for _, out := range []string{st.serverOut.Stdout, st.clientOut.Stdout} {
					if strings.Contains(out, "invalid data") || !strings.Contains(out, " iters in ") {
						return "", fmt.Errorf("not done, or other bytes than were sent:\n%s", out)
					}
				}
				return "", nil
			},
		})
	}
	for _, tool := range []string{"rc", "uc", "ud", "srq"} {
		add(tool, false)
		add(tool, tool == "rc" || tool == "ud", "-e", "-c")
		add(tool, false, "-s", "1", "-c")
	}
	add("rc", false, "-c", "-N")
	add("rc", false, "-e", "-c", "-s", "1000000", "-n", "20")
	add("uc", false, "-e", "-c", "-s", "60000", "-n", "20")
	return list
}

// perftestShort are the quick ones.
var perftestShort = []string{"ib_write_bw -n 100", "ib_send_lat -n 200 -e", "ib_send_lat -n 200 -e -t 1 -r 1", "ib_send_bw -n 100 -R"}

// perftestCells are those of perftest. Its tools do not look at the bytes that
// arrive; ib_write_lat waits for some of them.
func perftestCells() []*cell {
	var list []*cell
	add := func(op string, flags ...string) {
		side := func(st *stage, s *site, peer ...string) []string {
			argv := []string{"ib_" + op, "-F", "-d", s.dev, "-x", strconv.Itoa(s.gid), "-p", strconv.Itoa(st.port)}
			if st.kind >= kernelServes {
				argv = append(argv, "-u", "17") // a starved emulator is no lost packet
			}
			return append(append(argv, flags...), peer...)
		}
		c := &cell{
			group: "perftest", name: strings.Join(append([]string{"ib_" + op}, flags...), " "), kinds: every,
			server: func(st *stage) []string { return side(st, st.server) },
			client: func(st *stage) []string { return side(st, st.client, st.server.addr) },
			ready:  listening, check: tableOfPerftest,
		}
		for _, f := range flags {
			if f == "-R" || f == "-z" {
				c.ready, c.retry = waiting, true
			}
			if f == "-a" {
				c.limit = 2 * usual
			}
		}
		c.short = slices.Contains(perftestShort, c.name)
		list = append(list, c)
	}
	for _, op := range []string{"send", "write", "read", "atomic"} {
		add(op+"_bw", "-n", "100")
		add(op+"_lat", "-n", "200")
		add(op+"_bw", "-n", "100", "-R")
		add(op+"_lat", "-n", "200", "-R")
		add(op+"_bw", "-n", "100", "-q", "16")
		if op != "write" { // WRITEs complete nothing on the other side
			add(op+"_bw", "-n", "100", "-e")
			add(op+"_lat", "-n", "200", "-e")
		}
	}
	// Completion queues of one entry: there is no room for a second one.
	add("send_lat", "-n", "200", "-e", "-t", "1", "-r", "1")
	add("send_bw", "-n", "100", "-e", "-t", "1", "-r", "1")
	add("read_lat", "-n", "200", "-e", "-t", "1")
	add("write_bw", "-n", "100", "-t", "1")
	for _, op := range []string{"send_bw", "write_bw"} {
		add(op, "-n", "100", "-s", "4096", "-c", "UC")
		add(op, "-n", "100", "-b")
		add(op, "-n", "100", "-s", "1048576")
		add(op, "-n", "96", "-l", "8")
		add(op, "-n", "100", "-s", "64", "-I", "64")
		add(op, "-n", "20", "-a")
		add(op, "-n", "100", "--use_old_post_send")
	}
	add("send_lat", "-n", "200", "-c", "UC")
	add("write_lat", "-n", "200", "-c", "UC")
	add("send_lat", "-n", "200", "-c", "UD")
	add("send_bw", "-n", "100", "-s", "1024", "-c", "UD")
	add("send_lat", "-n", "200", "-c", "UD", "-e")
	add("send_lat", "-n", "200", "-c", "UD", "-R")
	add("send_bw", "-n", "100", "--use-srq", "-q", "4")
	add("send_lat", "-n", "200", "--use-srq")
	add("send_bw", "-n", "100", "-z")
	return list
}

// tableOfPerftest looks for the row of results.
func tableOfPerftest(st *stage) (string, error) {
	for _, out := range []string{st.clientOut.Stdout} {
		if !strings.Contains(out, "#bytes") || strings.Contains(out, "Completion with error") {
			return "", fmt.Errorf("no table of results:\n%s", out)
		}
	}
	return "", nil
}

// perftestNeeds and the like are the packages that cells need.
var (
	baseNeeds = []guest.Need{
		{File: "setpriv", Package: "util-linux"},
		{File: "ibv_devinfo", Package: "ibverbs-utils"},
		{File: "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so", Package: "ibverbs-providers"},
		{File: "ib_write_bw", Package: "perftest"},
		{File: "rping", Package: "rdmacm-utils"},
	}
)
