//go:build linux

package programs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/e2e/guest"
)

// managerCell is a program of rdmacm-utils, the same on both sides. at is the
// address of the server.
func managerCell(name string, kinds []kind, server, client func(st *stage, at, port string) []string) *cell {
	return &cell{
		group: "rdmacm-utils", name: name, kinds: kinds, ready: waiting, retry: true,
		server: func(st *stage) []string { return server(st, st.server.addr, strconv.Itoa(st.port)) },
		client: func(st *stage) []string { return client(st, st.server.addr, strconv.Itoa(st.port)) },
	}
}

// same makes both sides of the program, of the flag that each has for the
// server's address, and of flags of both.
func same(tool, portFlag, bind, dial string, flags ...string) (server, client func(st *stage, at, port string) []string) {
	side := func(flag string) func(*stage, string, string) []string {
		return func(_ *stage, at, port string) []string {
			argv := []string{tool, flag, at}
			if portFlag != "" {
				argv = append(argv, portFlag, port)
			}
			return append(argv, flags...)
		}
	}
	return side(bind), side(dial)
}

// managerCells use the connection manager and verbs.
func managerCells() []*cell {
	var list []*cell
	add := func(tool, portFlag, bind, dial string, flags ...string) *cell {
		server, client := same(tool, portFlag, bind, dial, flags...)
		c := managerCell(strings.Join(append([]string{tool}, flags...), " "), every, server, client)
		list = append(list, c)
		return c
	}
	list = append(list, rpingCells()...)
	for _, flags := range [][]string{{}, {"-c", "5", "-C", "20", "-S", "6000"}, {"-m"}, {"-t", "32"}} {
		add("ucmatose", "-p", "-b", "-s", flags...)
	}
	add("udaddy", "", "-b", "-s")
	add("udaddy", "", "-b", "-s", "-c", "3", "-C", "5", "-S", "1000")
	add("cmtime", "-p", "-b", "-s", "-c", "20").endless = true
	list = append(list, managerCell("rdma_client, rdma_server", every,
		func(_ *stage, at, port string) []string { return []string{"rdma_server", "-s", at, "-p", port} },
		func(_ *stage, at, port string) []string { return []string{"rdma_client", "-s", at, "-p", port} }))
	return append(list, mckeyCell())
}

func rpingCells() (list []*cell) {
	for _, flags := range [][]string{{}, {"-S", "65535"}, {"-q"}} {
		c := managerCell(strings.Join(append([]string{"rping -V"}, flags...), " "), every,
			func(_ *stage, at, port string) []string {
				return append([]string{"rping", "-s", "-V", "-a", at, "-p", port}, flags...)
			},
			func(_ *stage, at, port string) []string {
				return append([]string{"rping", "-c", "-V", "-C", "10", "-a", at, "-p", port}, flags...)
			})
		c.short = len(flags) == 0
		list = append(list, c)
	}
	return list
}

// mckeyCell is multicast. The sender of the original leaves without waiting for
// what it sends, and Linux sends a part of it then: one message at least.
func mckeyCell() *cell {
	const group = "239.18.0.7"
	side := func(flags ...string) func(st *stage, at, port string) []string {
		return func(st *stage, at, _ string) []string {
			if flags[0] == "-s" {
				at = st.client.addr
			}
			return append([]string{"mckey", "-b", at, "-m", group}, flags...)
		}
	}
	c := managerCell("mckey", every, side("-C", "1"), side("-s", "-C", "10"))
	c.retry = false
	c.ready = func(ctx context.Context, st *stage, _ *guest.Process) error {
		_, err := guest.Run(ctx, st.server.node, "sh", "-c", "until ip maddr show | grep -q 'inet *"+group+"'; do sleep 0.05; done")
		return err
	}
	return c
}

// socketCells are rsockets: streams and datagrams over verbs.
func socketCells() []*cell {
	var list []*cell
	add := func(tool string, flags ...string) {
		server, client := same(tool, "-p", "-b", "-s", flags...)
		list = append(list, managerCell(strings.Join(append([]string{tool}, flags...), " "), every, server, client))
	}
	short := []string{"-S", "65536", "-C", "10", "-I", "3"}
	add("rstream", append(short, "-T", "v")...)
	// Not -T a: a client of the original often takes the end of the
	// connection for an error, with Linux, too.
	add("rstream", append(short, "-T", "n", "-T", "v")...)
	add("rstream", append(short, "-T", "b", "-T", "v")...)
	add("rstream", append(short, "-T", "r")...)
	add("rstream", append(short, "-k", "1")...)
	add("rstream", "-S", "100", "-C", "100", "-I", "3")
	add("riostream", append(short, "-T", "v")...)
	add("riostream", append(short, "-T", "a", "-T", "v")...)
	// The side that sends chooses its address by the routes, so udpong
	// needs a host for each.
	server, client := same("udpong", "-p", "-b", "-s", "-S", "512", "-C", "100", "-T", "e")
	c := managerCell("udpong -S 512 -C 100 -T e", alone, server, client)
	c.endless = true
	c.ready = func(ctx context.Context, st *stage, _ *guest.Process) error { // it never sleeps
		_, err := guest.Run(ctx, st.server.node, "sh", "-c", fmt.Sprintf("until ss -Hlun 'sport = :%d' | grep -q .; do sleep 0.05; done", st.port))
		return err
	}
	list = append(list, c)
	return append(list, rcopyCell())
}

const fileSize = 3_000_000

// file is what rcopy and the web server carry, other bytes in each place.
func file() []byte {
	b := make([]byte, fileSize)
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + i>>16)
	}
	return b
}

// compare finds what arrived on our side.
func compare(path string) error {
	b, err := os.ReadFile(path)
	if err == nil && !bytes.Equal(b, file()) {
		err = fmt.Errorf("%s has other bytes than were sent, %d of them", path, len(b))
	}
	return err
}

// rcopyCell copies a file. A guest has no file of ours.
func rcopyCell() *cell {
	c := managerCell("rcopy", ours,
		func(_ *stage, _, port string) []string { return []string{"rcopy", "-p", port} },
		func(st *stage, at, port string) []string {
			return []string{"rcopy", filepath.Join(st.dir, "file"), at + ":" + filepath.Join(st.dir, "copy"), "-p", port}
		})
	c.endless = true
	c.check = func(st *stage) (string, error) { return "", compare(filepath.Join(st.dir, "copy")) }
	return c
}
