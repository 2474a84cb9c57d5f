package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/transport/owner"
)

// holdSocket is the name of the socket that keeps the host while a process is
// connected. It also shows the preloaded library that there is a host.
const holdSocket = "socket"

// What the host says to a process that connects.
const (
	heldText    = "held\n"
	refusedText = "refused\n"
	reportText  = "report\n" // what a process may ask
)

// maxHolders bounds the processes that hold the host.
const maxHolders = 4096

// helloTime is how long a host may take to answer.
const helloTime = 10 * time.Second

// ErrRefused is wrapped by the error of Hold where the daemon does not serve
// programs of this user.
var ErrRefused = errors.New("the daemon serves no programs of this user: its configuration says whose (programs.users)")

// Hold connects to the host of a directory, which then does not find itself
// idle. It waits for 10 s until the host has its devices (Host.Ready). The file
// that it returns is the connection.
func Hold(dir string) (*os.File, error) {
	path := filepath.Join(dir, holdSocket)
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("%s: a socket's path has at most %d bytes: use a shorter directory", path, maxSocketPath)
	}
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(helloTime)); err != nil {
		return nil, err
	}
	b := make([]byte, 64)
	n, err := conn.Read(b)
	switch string(b[:n]) {
	case heldText:
		return conn.File()
	case refusedText:
		return nil, fmt.Errorf("%s: %w", path, ErrRefused)
	}
	return nil, errors.Join(errors.New(path+": no daemon of programs answers"), err)
}

// accept takes processes that hold the host, until the door is closed.
func (h *Host) accept() {
	for {
		conn, err := h.door.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // files have run out
			<-time.After(50 * time.Millisecond)
			continue
		}
		h.admit(conn)
	}
}

// admit answers a process, and keeps its connection. An answer fits into the
// socket of a new connection, so no process holds up the host.
func (h *Host) admit(conn *net.UnixConn) {
	uid, err := userOf(conn)
	if err != nil {
		conn.Close()
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.leaving || len(h.holders) >= maxHolders {
		conn.Close()
		return
	}
	if !h.allows(uid) {
		_, _ = conn.Write([]byte(refusedText)) // it sees the end, else
		conn.Close()
		return
	}
	if _, err := conn.Write([]byte(heldText)); err != nil {
		conn.Close()
		return
	}
	h.holders[conn] = struct{}{}
	h.came = true
	h.changes()
	h.wg.Go(func() { h.keep(conn) })
}

// keep waits for the end of a connection, and answers the one question that
// there is. Anything else ends it.
func (h *Host) keep(conn *net.UnixConn) {
	b := make([]byte, len(reportText)+1)
	for {
		n, err := conn.Read(b)
		if err != nil || string(b[:n]) != reportText || h.report(conn) != nil {
			break
		}
	}
	conn.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.holders, conn)
	h.changes()
}

// report writes what Ports returns, a lease a message, and an empty one at the
// end. A process that does not read it has as long as it gives the host. That
// is counted from when all is known: on a busy machine it takes a while.
func (h *Host) report(conn *net.UnixConn) error {
	ports := h.Ports()
	if err := conn.SetWriteDeadline(time.Now().Add(helloTime)); err != nil {
		return err
	}
	for _, p := range ports {
		if p.Lack != nil {
			if err := writeUsed(conn, Used{Device: p.Name, Addr: p.Addr, Lack: p.Lack.Error()}); err != nil {
				return err
			}
		}
		for i, list := range [][]owner.Lease{p.Ended, p.Leases} {
			for _, l := range list {
				if len(l.Peers) > mostPeers {
					l.Peers = l.Peers[:mostPeers]
				}
				l.Services = nil
				if err := writeUsed(conn, Used{Device: p.Name, Addr: p.Addr, Lease: l, Ended: i == 0, Runs: true}); err != nil {
					return err
				}
			}
		}
	}
	_, err := conn.Write([]byte(endText))
	return err
}

func writeUsed(conn net.Conn, u Used) error {
	b, err := json.Marshal(u)
	if err == nil {
		_, err = conn.Write(b)
	}
	return err
}

// mostPeers bounds those of a lease in a report.
const mostPeers = 256

// endText ends a report.
const endText = "end\n"

// Used is what a process has done on a device.
type Used struct {
	Device string
	Addr   netip.Addr
	Lease  owner.Lease
	Ended  bool   // the lease has
	Runs   bool   // Lease.Run is known; false: the daemon is of another release
	Lack   string // not "": there is no lease here, but this reason why those of the device are not known
}

// Report asks the host, on the connection that Hold has returned, for all
// leases: those that there are, and the last ones that have ended.
func Report(held *os.File) (list []Used, err error) {
	conn, err := net.FileConn(held)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(helloTime)); err != nil {
		return nil, err
	}
	if _, err := conn.Write([]byte(reportText)); err != nil {
		return nil, err
	}
	b := make([]byte, 64<<10)
	for {
		n, err := conn.Read(b)
		if err != nil {
			return nil, fmt.Errorf("the daemon tells nothing of leases: %w", err)
		}
		if string(b[:n]) == endText {
			return list, nil
		}
		var u Used
		if err := json.Unmarshal(b[:n], &u); err != nil {
			return nil, fmt.Errorf("the daemon tells something else of leases: %w", err)
		}
		list = append(list, u)
	}
}

// userOf asks the kernel which user has connected.
func userOf(conn *net.UnixConn) (uid uint32, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
		return 0, e
	}
	if err != nil {
		return 0, os.NewSyscallError("getsockopt SO_PEERCRED", err)
	}
	return cred.Uid, nil
}

// Wait returns when no process has held the host, and none has had a lease,
// for a time (quiet), or when ctx ends. In the first case no more are let in
// afterwards: the host is to be closed. For the first one to come it waits
// another time: the process that has started the host may be slow.
func (h *Host) Wait(ctx context.Context, first, quiet time.Duration) {
	var since time.Time // when the host became idle
	begin := time.Now()
	timer := time.NewTimer(first)
	defer timer.Stop()
	for ctx.Err() == nil {
		h.mu.Lock()
		changed := h.changed
		h.mu.Unlock()
		idle, now := h.idle(), time.Now()
		h.mu.Lock()
		if !idle {
			h.came, since = true, time.Time{}
		} else if since.IsZero() {
			since = now
		}
		left := since.Add(quiet).Sub(now)
		if !h.came {
			left = begin.Add(first).Sub(now)
		}
		idle = idle && len(h.holders) == 0
		if idle && left <= 0 {
			h.leaving = true
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		timer.Stop()
		if idle {
			timer.Reset(left)
		}
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		}
	}
}
