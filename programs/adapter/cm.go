//go:build linux && cgo

package main

import (
	"encoding/binary"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/programs/ucma"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
)

// cmNode is the device file of the connection manager.
const cmNode = "rdma_cm"

// cmFile is an open file of the connection manager. It has all devices open
// whose files are beside it.
type cmFile struct {
	devices []*device
	client  *ucma.Client
	inode   uint64
}

// openCM opens the connection manager, and returns the number that the program
// gets.
func openCM(path string, flags int) (file, int, error) {
	f := &cmFile{}
	nodes, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "uverbs*"))
	for _, name := range nodes {
		n, err := readNode(name)
		if err != nil {
			continue // one of the kernel's
		}
		d, err := use(n)
		if err != nil {
			say("open " + name + ": " + err.Error())
			continue
		}
		f.devices = append(f.devices, d)
	}
	slices.SortFunc(f.devices, func(a, b *device) int { return a.index - b.index })
	var err error
	f.client, err = ucma.Open(ucma.Program{Read: readProgram, File: cmClient, LowPorts: bindsLow}, f.known)
	if err != nil {
		f.release()
		return nil, 0, err
	}
	fd := f.client.Ready()
	if flags&unix.O_NONBLOCK == 0 {
		err = unix.SetNonblock(fd, false)
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err != nil {
		unix.Close(fd)
		f.close()
		return nil, 0, err
	}
	f.inode = st.Ino
	return f, fd, nil
}

// known are the devices that the connection manager knows.
func (f *cmFile) known() (list []ucma.Device) {
	for _, d := range f.devices {
		list = append(list, ucma.Device{Dev: d.verbs, Index: d.index})
	}
	return list
}

// cmClient returns the client of a file descriptor of the program, or nil.
func cmClient(fd int) *ucma.Client {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return nil
	}
	for _, f := range handles.all() {
		if f, ok := f.(*cmFile); ok && f.inode == st.Ino && st.Mode&unix.S_IFMT == unix.S_IFIFO {
			return f.client
		}
	}
	return nil
}

// bindsLow reports whether the process has CAP_NET_BIND_SERVICE.
func bindsLow() bool {
	const netBindService = 10
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective>>netBindService&1 != 0
}

func (f *cmFile) command(b []byte) abi.Reply { return f.client.Command(b) }

// response implements file: after the header, except for CREATE_ID.
func (f *cmFile) response(b []byte) int {
	if binary.NativeEndian.Uint32(b) == 0 {
		return 16
	}
	return 8
}

// waitsFor implements file. The connection manager's packets are handled where
// its events are made.
func (f *cmFile) waitsFor() *device {
	if len(f.devices) == 1 {
		return f.devices[0]
	}
	return nil
}

func (f *cmFile) news() uint64 { return f.client.Events() }
func (f *cmFile) files() []int { return f.client.Files() }

func (f *cmFile) doorbells() uintptr { return 0 }

func (f *cmFile) close() {
	_ = f.client.Close()
	f.release()
}

func (f *cmFile) release() {
	for _, d := range f.devices {
		d.release()
	}
}
