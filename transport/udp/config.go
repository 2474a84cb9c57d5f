package udp

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Config adjusts a link. The zero value is ready to use.
type Config struct {
	Port       uint16 // local UDP port; 0 = 4791, the only one that other stacks send to
	RecvBuffer int    // bytes of socket receive buffer to ask for; 0 = 16 MiB
	SendBuffer int    // bytes of socket send buffer to ask for; 0 = 4 MiB
	DisableGSO bool   // send each packet as a datagram of its own
	DisableGRO bool   // receive each packet as a datagram of its own
	ReusePort  bool   // share the address and port with other links of this user (SO_REUSEPORT)
}

// Socket buffers asked for by default. The kernel grants at most
// net.core.rmem_max and wmem_max to a process without CAP_NET_ADMIN.
const (
	defaultRecvBuffer = 16 << 20
	defaultSendBuffer = 4 << 20
)

func (c *Config) fill() {
	c.Port = cmp.Or(c.Port, rocev2.UDPPort)
	c.RecvBuffer = cmp.Or(max(c.RecvBuffer, 0), defaultRecvBuffer)
	c.SendBuffer = cmp.Or(max(c.SendBuffer, 0), defaultSendBuffer)
}

// place fills in the defaults and completes addr to what a link is bound to: an
// address and port, and the scope of the address.
func (c *Config) place(addr netip.Addr) (at netip.AddrPort, scope uint32, err error) {
	c.fill()
	if addr, err = checkAddr(addr, c.Port); err != nil {
		return at, 0, err
	}
	at = netip.AddrPortFrom(addr, c.Port)
	scope, err = scopeOf(at)
	return at, scope, err
}

// hopLimit is what packets have whose path asks for no other.
const hopLimit = 64

// MaxSourcePorts is how many source ports beside its own a link, or a group of
// links, can send from. A socket is open for each until the link is closed.
const MaxSourcePorts = 64

// MaxGroups is how many multicast groups a link can join. A socket is open for
// each, with a receive buffer of up to 4 MiB.
const MaxGroups = 1024

// OpenError says why the socket of a device, or a source port of a queue pair,
// could not be opened, or a group not be joined. errors.Is tells the system's
// error, syscall.EADDRINUSE for example.
type OpenError struct {
	Addr netip.AddrPort // what was to be opened
	Op   string         // what failed: "check address", "bind" …
	Err  error          // the cause, mostly the system's error
	Hint string         // which process has it, or what to do; may be empty
}

// Error says what could not be opened and why.
func (e *OpenError) Error() string {
	s := fmt.Sprintf("udp: open %v: %s: %v", e.Addr, e.Op, e.Err)
	if e.Hint != "" {
		s += ": " + e.Hint
	}
	return s
}

// filesHint is what to do about too many open files.
const filesHint = "the process has as many files and sockets open as it may; raise that limit (ulimit -n), or close some"

// Unwrap returns the cause.
func (e *OpenError) Unwrap() error { return e.Err }

// Is reports whether an error of package syscall is the cause. Windows has
// numbers of its own for errors of sockets.
func (e *OpenError) Is(target error) bool {
	switch target {
	case syscall.EADDRINUSE:
		return errors.Is(e.Err, addrInUse)
	case syscall.EADDRNOTAVAIL:
		return errors.Is(e.Err, addrNotLocal)
	}
	return false
}

// Reasons that are not a system's error.
var (
	errUnspecified = errors.New("not the address of one host")
	errNoZone      = errors.New("link-local address without a zone")
)

// checkAddr refuses what a link cannot be bound to and completes the zone of a
// link-local address where there is no choice.
func checkAddr(addr netip.Addr, port uint16) (netip.Addr, error) {
	addr = addr.Unmap()
	bad := func(err error, hint string) error {
		return &OpenError{Addr: netip.AddrPortFrom(addr, port), Op: "check address", Err: err, Hint: hint}
	}
	if !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() {
		return addr, bad(errUnspecified, "a device has one unicast address; local are "+localAddrs())
	}
	if !addr.IsLinkLocalUnicast() || !addr.Is6() {
		return addr.WithZone(""), nil
	}
	if addr.Zone() != "" {
		return nameZone(addr), nil
	}
	var zoned []string
	for _, l := range locals() {
		if l.addr.WithZone("") == addr {
			zoned = append(zoned, l.addr.String())
		}
	}
	if len(zoned) == 1 {
		return netip.MustParseAddr(zoned[0]), nil
	}
	return addr, bad(errNoZone, "write it with its interface; local are "+strings.Join(append(zoned, localAddrs()), ", "))
}
