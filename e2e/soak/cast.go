//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	preload "github.com/gosoftroce/rocev2/programs"
)

// cast is the processes that take part in a soak.
type cast struct {
	owner            *process // of the port, where all share an address
	servers, clients []*process
	programs         []*process // rping
}

func (c *cast) all() (list []*process) {
	if c.owner != nil {
		list = append(list, c.owner)
	}
	list = append(list, c.servers...)
	list = append(list, c.clients...)
	return append(list, c.programs...)
}

// apart makes two servers and four groups of clients, each on an address that
// nothing else has.
func apart(o options) (*cast, error) {
	network := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), rand.IntN(256))
	return goProcesses(o, 4, func(i int) string { return network + strconv.Itoa(1+i) })
}

// goProcesses makes two servers and as many groups of clients as groups says,
// on addresses by their number.
func goProcesses(o options, groups int, addr func(i int) string) (*cast, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &cast{}
	common := []string{"-loss", o.loss, "-pace", o.pace.String(), "-report", o.report.String(), "-dir", o.dir,
		"-shared=" + strconv.FormatBool(o.shared)}
	make := func(kind string, i int, args ...string) *process {
		argv := append(append([]string{self, "-role", kind, "-addr"}, args...), common...)
		return &process{name: kind + " " + strconv.Itoa(i+1), argv: argv, says: true, kill: i > 0}
	}
	var servers []string
	for i := range 2 {
		port := strconv.Itoa(firstPort + i)
		servers = append(servers, net.JoinHostPort(addr(i), port))
		c.servers = append(c.servers, make("server", i, addr(i), "-port", port, "-conns", strconv.Itoa(o.conns)))
	}
	each := o.conns / groups
	for i := range groups {
		c.clients = append(c.clients, make("client", i, addr(2+i), "-servers", strings.Join(servers, ","),
			"-conns", strconv.Itoa(each), "-first", strconv.Itoa(i*each)))
	}
	return c, nil
}

// together makes an owner of a port, two servers and eight groups of clients on
// its address, and six programs of librdmacm, where those are installed.
func together(ctx context.Context, o options) (*cast, error) {
	addr := fmt.Sprintf("127.%d.%d.1", 1+rand.IntN(254), rand.IntN(256))
	c, err := goProcesses(o, 8, func(int) string { return addr })
	if err != nil {
		return nil, err
	}
	bin, programs := filepath.Join(o.dir, "bin"), filepath.Join(o.dir, "programs")
	build := exec.CommandContext(ctx, "go", "build", "-o", bin+"/", "github.com/gosoftroce/rocev2/cmd/...")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(build.Args, " "), err, out)
	}
	config := filepath.Join(o.dir, "rocev2d.toml")
	text := fmt.Sprintf("[[device]]\naddress = %q\n\n[programs]\ndirectory = %q\n\n[admin]\nlisten = \"\"\n", addr, programs)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	// Where programs and the Go processes find the owner.
	if err := os.Setenv("ROCEV2_PROGRAMS", programs); err != nil {
		return nil, err
	}
	hurt := new(faults) // of the programs, and of the owner that they share
	c.owner = &process{name: "rocev2d", argv: []string{filepath.Join(bin, "rocev2d"), "--config", config}, kill: true, faults: hurt}
	rping, err := exec.LookPath("rping")
	if err != nil {
		fmt.Println("SKIPPED rping: it is not installed (package rdmacm-utils)")
		return c, nil
	}
	// Without rocev2 run, which would start a daemon where the owner is
	// dead.
	library, err := preload.Install(ctx, bin)
	if err != nil {
		return nil, err
	}
	run := func(name string, kill bool, port int, args ...string) {
		argv := append([]string{"env", "LD_PRELOAD=" + library, rping, "-a", addr, "-p", strconv.Itoa(port)}, args...)
		c.programs = append(c.programs, &process{name: name, argv: argv, kill: kill, ends: !kill, faults: hurt})
	}
	// Each client has a server of its own. Of two requests that come close
	// together a server of rping forgets the first, takes the second one
	// twice, and fails or crashes.
	const pairs = 3
	for i := range pairs {
		run("rping server "+strconv.Itoa(i+1), true, firstPort+100+i, "-s", "-P")
	}
	for i := range pairs {
		run("rping client "+strconv.Itoa(i+1), false, firstPort+100+i, "-c", "-V", "-C", "1000", "-S", "1000")
	}
	return c, nil
}
