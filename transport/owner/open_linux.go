//go:build !portable

package owner

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/procfs"
	"github.com/gosoftroce/rocev2/transport/lease"
	"github.com/gosoftroce/rocev2/transport/udp"
)

const (
	// letGo is how long the leaseholders of an owner that has ended may
	// have the port: they close their sockets when they learn of it.
	letGo    = 2 * time.Second
	tryEvery = 20 * time.Millisecond
)

// openSlots binds the sockets, and waits for those that an owner before this
// one has leased.
func openSlots(c *Config) (*udp.Slots, error) {
	end := time.Now().Add(letGo)
	tick := time.NewTicker(tryEvery)
	defer tick.Stop()
	for {
		s, err := udp.OpenSlots(c.Addr, c.UDP, c.Slots)
		if !errors.Is(err, unix.EADDRINUSE) || !c.abandoned() || time.Now().After(end) {
			return s, hint(err)
		}
		<-tick.C
	}
}

// hint adds to an error which process has the port, if that is an owner, or a
// process that is stopped: a leaseholder of an owner that has ended, which does
// not let go.
func hint(err error) error {
	open := (*udp.OpenError)(nil)
	if !errors.As(err, &open) || !errors.Is(err, unix.EADDRINUSE) {
		return err
	}
	proc := procfs.Root()
	if pid := lease.OwnerPID(open.Addr.Addr(), open.Addr.Port()); pid != 0 {
		e := *open
		e.Hint = fmt.Sprintf("process %d owns UDP port %d on %v already, and leases parts of it: use a lease, which needs no Config.Owner and no second rocev2d, or open another local address",
			pid, open.Addr.Port(), open.Addr.Addr())
		return &e
	}
	if p, ok := procfs.HolderOf(proc, open.Addr); ok && isStopped(proc, p.PID) {
		e := *open
		e.Hint = fmt.Sprintf("UDP port %d on %v is taken by %v, which is stopped; if it leased the port from an owner that has ended, it lets go of it when it goes on (kill -CONT %d) or ends (kill -KILL %d)",
			open.Addr.Port(), open.Addr.Addr(), p, p.PID, p.PID)
		return &e
	}
	return err
}

// isStopped reports whether a process is stopped by a signal or a tracer.
func isStopped(proc fs.FS, pid int) bool {
	b, err := fs.ReadFile(proc, strconv.Itoa(pid)+"/stat")
	if err != nil {
		return false
	}
	_, rest, ok := strings.Cut(string(b), ") ") // the name may have brackets, but a later one is the state's
	for ok {
		after, more, found := strings.Cut(rest, ") ")
		if !found {
			break
		}
		_, rest = after, more
	}
	return ok && (strings.HasPrefix(rest, "T") || strings.HasPrefix(rest, "t"))
}
