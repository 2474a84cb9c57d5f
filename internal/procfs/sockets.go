package procfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path"
	"strconv"
	"strings"
)

// Root is the /proc of this system.
func Root() fs.FS { return os.DirFS("/proc") }

// Socket is a bound UDP socket of this network namespace.
type Socket struct {
	Local netip.AddrPort
	UID   int    // of its owner
	Inode string // by which a process's descriptor is known
	Drops uint64 // datagrams dropped at the socket: its buffer was full, or a checksum was wrong
}

// Takes reports whether the socket conflicts with one bound to at.
func (s Socket) Takes(at netip.AddrPort) bool {
	a := s.Local.Addr()
	return s.Local.Port() == at.Port() && (a.IsUnspecified() || a == at.Addr().Unmap().WithZone(""))
}

// UDPSockets lists the UDP sockets of both IP versions. The kernel's list may
// lack a socket while others come and go. The error is that of the list which
// cannot be read, if neither can.
func UDPSockets(proc fs.FS) ([]Socket, error) {
	var all []Socket
	var errs []error
	for _, name := range []string{"net/udp", "net/udp6"} {
		data, err := fs.ReadFile(proc, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for line := range strings.Lines(string(data)) {
			if s, ok := parseSocket(line); ok {
				all = append(all, s)
			}
		}
	}
	if len(errs) == 2 {
		return nil, errors.Join(errs...)
	}
	return all, nil
}

// parseSocket parses a line of /proc/net/udp: sl local_address rem_address st
// tx:rx tr:when retrnsmt uid timeout inode ref pointer drops.
func parseSocket(line string) (Socket, bool) {
	f := strings.Fields(line)
	if len(f) < 10 {
		return Socket{}, false
	}
	local, ok := parseAddr(f[1])
	if !ok {
		return Socket{}, false
	}
	s := Socket{Local: local, Inode: f[9]}
	s.UID, _ = strconv.Atoi(f[7])
	if len(f) > 12 {
		s.Drops, _ = strconv.ParseUint(f[12], 10, 64)
	}
	return s, true
}

// parseAddr parses an address of /proc/net/udp: 32-bit words in hex in the
// machine's byte order, a colon, the port.
func parseAddr(s string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(s, ":")
	p, err := strconv.ParseUint(port, 16, 16)
	if err != nil || len(host)%8 != 0 {
		return netip.AddrPort{}, false
	}
	var b []byte
	for ; host != ""; host = host[8:] {
		w, err := strconv.ParseUint(host[:8], 16, 32)
		if err != nil {
			return netip.AddrPort{}, false
		}
		b = binary.NativeEndian.AppendUint32(b, uint32(w))
	}
	a, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), ok
}

// Process is one that runs on this system.
type Process struct {
	PID  int
	Name string
}

// String names the process: "process 12 (name)".
func (p Process) String() string {
	if p.PID == os.Getpid() {
		return fmt.Sprintf("this process itself (pid %d), which has a socket open there", p.PID)
	}
	return fmt.Sprintf("process %d (%s)", p.PID, p.Name)
}

// Holder returns the first process that has a descriptor of one of the
// sockets, and false if none does that is visible here: a socket may belong to
// another user, to another namespace, or to the kernel.
func Holder(proc fs.FS, sockets []Socket) (Process, bool) {
	inodes := make(map[string]bool)
	for _, s := range sockets {
		inodes[s.Inode] = true
	}
	if len(inodes) == 0 {
		return Process{}, false
	}
	entries, err := fs.ReadDir(proc, ".")
	if err != nil {
		return Process{}, false
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && hasDescriptor(proc, e.Name(), inodes) {
			return Process{PID: pid, Name: nameOf(proc, e.Name())}, true
		}
	}
	return Process{}, false
}

// HolderOf returns the process that keeps others from binding a UDP socket to
// an address. The kernel's list may lack a socket while others come and go, so
// it is read more than once.
func HolderOf(proc fs.FS, at netip.AddrPort) (Process, bool) {
	for range 5 {
		if p, ok := Holder(proc, Taking(proc, at)); ok {
			return p, true
		}
	}
	return Process{}, false
}

// Taking returns the sockets that conflict with one bound to at.
func Taking(proc fs.FS, at netip.AddrPort) (list []Socket) {
	all, err := UDPSockets(proc)
	if err != nil {
		return nil
	}
	for _, s := range all {
		if s.Takes(at) {
			list = append(list, s)
		}
	}
	return list
}

func hasDescriptor(proc fs.FS, pid string, inodes map[string]bool) bool {
	dir := path.Join(pid, "fd")
	fds, err := fs.ReadDir(proc, dir)
	if err != nil {
		return false
	}
	for _, fd := range fds {
		target, err := fs.ReadLink(proc, path.Join(dir, fd.Name()))
		if err != nil {
			continue
		}
		if inode, ok := strings.CutPrefix(target, "socket:["); ok && inodes[strings.TrimSuffix(inode, "]")] {
			return true
		}
	}
	return false
}

func nameOf(proc fs.FS, pid string) string {
	b, err := fs.ReadFile(proc, path.Join(pid, "comm"))
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}
