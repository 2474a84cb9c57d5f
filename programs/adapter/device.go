//go:build linux && cgo

package main

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/programs/ucma"
	"github.com/gosoftroce/rocev2/programs/uverbs"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// device is a device on an address, which all files of it share. It is open
// while one of them is.
type device struct {
	verbs *verbs.Device
	core  *hca.Device
	index int
	name  string // uverbs0
	users int    // guarded by devices

	requests uverbs.Requests // that the program has posted
	findings *findings       // nil but in strict mode
}

// devices are those that are open, by their addresses.
var devices = struct {
	sync.Mutex
	open map[netip.Addr]*device
}{open: map[netip.Addr]*device{}}

// node is what a device file says.
type node struct {
	addr   netip.Addr
	index  int
	name   string       // rxe_eth0
	config verbs.Config // how the device is opened
}

// errNode says that a device file is none.
var errNode = fmt.Errorf("%w: the file does not say of which address the device is", unix.ENODEV)

// readNode reads a device file: lines of key=value.
func readNode(path string) (n node, err error) {
	f, err := os.Open(path)
	if err != nil {
		return n, err
	}
	defer f.Close()
	if n.index, err = strconv.Atoi(strings.TrimPrefix(filepath.Base(path), "uverbs")); err != nil {
		return n, errNode
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		switch key, value, _ := strings.Cut(lines.Text(), "="); key {
		case "address":
			n.addr, err = netip.ParseAddr(value)
		case "name":
			n.name = value
		case "leased":
			n.config.Leased = value == "1"
		case "loopback":
			n.config.Loopback = value == "1"
		case "shm":
			n.config.SharedMemory = value == "1"
		case "strict":
			n.config.Strict = value
		case "profile":
			n.config.Profile = value
		}
	}
	if err != nil || !n.addr.IsValid() {
		return n, errNode
	}
	return n, nil
}

// use opens the device of a node, unless it is open. One that is lost stays
// with those that have it.
func use(n node) (*device, error) {
	devices.Lock()
	defer devices.Unlock()
	if d := devices.open[n.addr]; d != nil && !d.core.Failed() {
		d.users++
		return d, nil
	}
	found := n.strictly()
	dev, err := verbs.OpenAddr(n.addr, n.config)
	if err != nil {
		return nil, err
	}
	// A peer that asks for a service without a listener is told so, as by a
	// kernel. Otherwise it would ask for a minute.
	if err := cm.Start(dev); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	d := &device{verbs: dev, core: verbs.HCA(dev), index: n.index, name: "uverbs" + strconv.Itoa(n.index), users: 1, findings: found}
	d.core.Program().CountRequests(d.requests.Sum)
	found.begin()
	devices.open[n.addr] = d
	return d, nil
}

// release gives a device up.
func (d *device) release() {
	devices.Lock()
	defer devices.Unlock()
	if d.users--; d.users == 0 {
		for addr, other := range devices.open {
			if other == d {
				delete(devices.open, addr)
			}
		}
		d.findings.tell(d.verbs)
		_ = d.verbs.Close()
		d.findings.end(d.verbs)
	}
}

// served is the device as its files see it.
func (d *device) served() *uverbs.Device {
	return &uverbs.Device{
		Name: d.name, Dev: d.core, GUID: d.verbs.Query().NodeGUID, Requests: &d.requests,
		Native:    func(peer netip.Addr) bool { return cm.Native(d.verbs, peer) },
		OwnHandle: func() bool { return ucma.Datagrams(d.verbs.Addr()) },
	}
}

// errnoOf returns what a program gets for an error of opening.
func errnoOf(err error) unix.Errno {
	var sys unix.Errno
	if errors.As(err, &sys) {
		return sys
	}
	return unix.ENODEV
}

// say writes a line to the program's standard error.
func say(text string) { _, _ = unix.Write(2, []byte("rocev2: "+text+"\n")) }
