package top

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gosoftroce/rocev2/transport/lease"
	"github.com/gosoftroce/rocev2/transport/owner"
)

// Local is a Source: the processes of this host that own ports, which tell of
// the programs of this user that share them. They have no queue pairs to show.
type Local struct{}

// ErrNothing is the error of a sample of Local where no process owns a port.
var ErrNothing = errors.New("no process of this user shares a port")

// Sample implements Source.
func (Local) Sample(context.Context) (*Sample, error) {
	s := &Sample{Source: "this host", Time: time.Now()}
	var lacking []string
	for _, path := range lease.Sockets() {
		leases, ended, err := owner.ListAt(path)
		if err != nil {
			if !errors.Is(err, lease.ErrNoOwner) && !isGone(err) {
				lacking = append(lacking, filepath.Base(path))
			}
			continue
		}
		s.port(filepath.Base(path), leases, ended)
	}
	if len(lacking) > 0 {
		s.Notice = "the owner of " + strings.Join(lacking, ", ") + " does not tell of its programs"
	}
	if len(s.Devices) == 0 {
		return s, ErrNothing
	}
	s.Time = time.Now()
	return s, nil
}

// isGone reports whether an owner has ended, or is none of this user's.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ECONNREFUSED)
}

// port adds a port and its programs.
func (s *Sample) port(name string, leases, ended []owner.Lease) {
	d := Device{Address: name, State: "shared"}
	for _, l := range leases {
		t := traffic{l.TxBytes, l.RxBytes, l.TxPackets, l.RxPackets}
		p := Program{PID: l.PID, User: int(l.UID), Slot: l.Slot, Command: l.Command, Device: name, Since: l.Since, QPs: l.QPs, Connections: l.Connections, traffic: t}
		for _, peer := range l.Reached {
			p.Peers = append(p.Peers, peer.Addr.String())
		}
		for _, peer := range l.Peers {
			if !slices.Contains(p.Peers, peer.String()) {
				p.Peers = append(p.Peers, peer.String())
			}
		}
		s.Programs = append(s.Programs, p)
		d.QPs += l.QPs
		d.add(t)
	}
	for _, l := range ended {
		d.add(traffic{l.TxBytes, l.RxBytes, l.TxPackets, l.RxPackets})
	}
	s.Devices = append(s.Devices, d)
}

func (t *traffic) add(o traffic) {
	t.TxBytes += o.TxBytes
	t.RxBytes += o.RxBytes
	t.TxPackets += o.TxPackets
	t.RxPackets += o.RxPackets
}

// Both is a Source: the daemon at its usual address, and what else there is on
// this host. Either may be missing.
type Both struct{ Daemon Source }

// Sample implements Source.
func (b Both) Sample(ctx context.Context) (*Sample, error) {
	s, err := b.Daemon.Sample(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	local, none := Local{}.Sample(ctx)
	switch {
	case err != nil && none != nil:
		return nil, fmt.Errorf("%w; and %w", err, none)
	case err != nil:
		local.Notice = strings.TrimPrefix(local.Notice+"; ", "; ") + err.Error()
		return local, nil
	case none != nil:
		return s, nil
	}
	for _, d := range local.Devices {
		if slices.ContainsFunc(s.Devices, func(k Device) bool { return k.Address == d.Address }) {
			continue
		}
		s.Devices = append(s.Devices, d)
		for _, p := range local.Programs {
			if p.Device == d.Address {
				s.Programs = append(s.Programs, p)
			}
		}
	}
	s.Notice = local.Notice
	return s, nil
}
