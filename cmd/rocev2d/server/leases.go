package server

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/observe/metrics"
	"github.com/gosoftroce/rocev2/programs"
	"github.com/gosoftroce/rocev2/transport/owner"
)

// programsHost has unmodified programs find devices.
type programsHost interface {
	io.Closer
	add(d *device) error
	Ready() error // all devices are there
}

// sharePorts says which users may share the ports of the devices, and makes the
// directory of unmodified programs if there is to be one.
func sharePorts(cfg *config.Config, log *slog.Logger) (c owner.Config, host programsHost, err error) {
	p := cfg.Programs
	uids, err := p.UIDs()
	if err != nil {
		return c, nil, fmt.Errorf("%s: %w", cfg.Where("programs.users"), err)
	}
	q := p.Lease
	c = owner.Config{Log: log,
		Allow: func(uid uint32) bool { return p.Any || uid == 0 || slices.Contains(uids, uid) },
		Quota: owner.Quota{QPs: q.QPs, RecvBuffer: q.Buffers, SendBuffer: q.Buffers, MADs: q.MADs, Leases: q.PerUser},
	}
	if p.Dir != "" {
		host, err = openPrograms(cfg, &c, log)
	}
	return c, host, err
}

// leaseUser is what metrics tell leases apart by.
type leaseUser struct {
	user, command string
}

// maxLeaseUsers bounds the label values of a device: commands are what
// processes say.
const maxLeaseUsers = 64

// otherCommands has those that are too many.
var otherCommands = leaseUser{"other", "other"}

// pastLeases remembers the leases of a device that have ended.
type pastLeases struct {
	programs.Ended

	mu   sync.Mutex
	sums map[leaseUser]*owner.Lease
}

func newPastLeases() *pastLeases { return &pastLeases{sums: map[leaseUser]*owner.Lease{}} }

// add is owner.Config.Ended.
func (p *pastLeases) add(l owner.Lease) {
	p.Add(l)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sums[p.user(&l)]
	s.QPs, s.Connections, l.QPs, l.Connections = 0, 0, 0, 0
	addLease(s, &l)
}

// user returns what a lease counts for, which is in sums afterwards. The caller
// holds mu.
func (p *pastLeases) user(l *owner.Lease) leaseUser {
	u := leaseUser{strconv.FormatUint(uint64(l.UID), 10), cmp.Or(l.Command, "unknown")}
	if p.sums[u] == nil && len(p.sums) >= maxLeaseUsers {
		u = otherCommands
	}
	if p.sums[u] == nil {
		p.sums[u] = &owner.Lease{}
	}
	return u
}

func addLease(to, l *owner.Lease) {
	to.QPs += l.QPs
	to.Connections += l.Connections
	to.Slots += l.Slots
	to.Add(l)
}

// total returns the sums over the leases that have ended, and those that there
// are, whose number is Slot.
func (p *pastLeases) total(now []owner.Lease) map[leaseUser]owner.Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[leaseUser]owner.Lease{}
	for i := range now {
		u := p.user(&now[i])
		s := all[u]
		addLease(&s, &now[i])
		s.Slot++
		all[u] = s
	}
	for u, past := range p.sums {
		s := all[u]
		slots := s.Slots
		addLease(&s, past)
		s.Slots = slots
		all[u] = s
	}
	return all
}

// leaseGauges are the leases for the metrics, by device, user and command.
func leaseGauges(devices []*device) (list []metrics.Gauge) {
	for _, d := range devices {
		if d.port == nil {
			continue
		}
		for u, l := range d.past.total(d.port.Leases()) {
			for _, g := range []struct {
				name, help string
				value      uint64
				total      bool
			}{
				{"leases", "processes that share the port of a device", uint64(l.Slot), false},
				{"lease_queue_pairs", "open queue pairs of such processes", uint64(l.QPs), false},
				{"lease_connections", "connections of such processes", uint64(l.Connections), false},
				{"lease_tx_packets", "packets that such processes have sent", l.TxPackets, true},
				{"lease_rx_packets", "packets that such processes have received", l.RxPackets, true},
				{"lease_tx_bytes", "bytes that such processes have sent, BTH to ICRC", l.TxBytes, true},
				{"lease_rx_bytes", "bytes that such processes have received, BTH to ICRC", l.RxBytes, true},
				{"lease_tx_shm_bytes", "bytes that such processes have sent through shared memory", l.TxShm, true},
				{"lease_rx_shm_bytes", "bytes that such processes have received through shared memory", l.RxShm, true},
				{"lease_queue_pairs_made", "queue pairs that such processes have made", l.MadeQPs, true},
			} {
				list = append(list, metrics.Gauge{Name: g.name, Help: g.help, Label: "device", LabelValue: d.addr(),
					More: []metrics.Label{{Name: "user", Value: u.user}, {Name: "command", Value: u.command}}, Value: float64(g.value), Total: g.total})
			}
		}
	}
	return list
}

// leaseInfo is a lease in the JSON interface.
type leaseInfo struct {
	Device      string    `json:"device"`
	Process     int       `json:"process"` // 0 if the daemon does not see it
	User        uint32    `json:"user"`
	Command     string    `json:"command"`
	Own         bool      `json:"own"` // the daemon's
	Slot        int       `json:"slot"`
	Slots       int       `json:"slots"`
	Since       time.Time `json:"since"`
	QueuePairs  int       `json:"queue_pairs"`
	Connections int       `json:"connections"`
	TxPackets   uint64    `json:"tx_packets"`
	RxPackets   uint64    `json:"rx_packets"`
	TxBytes     uint64    `json:"tx_bytes"`
	RxBytes     uint64    `json:"rx_bytes"`
	TxShm       uint64    `json:"tx_shm_bytes"` // of tx_bytes, through shared memory
	RxShm       uint64    `json:"rx_shm_bytes"`
	Made        uint64    `json:"queue_pairs_made"` // since the beginning
	// Reached are peers that queue pairs were connected to: the first ones.
	Reached  []owner.Peer `json:"reached"`
	Peers    []string     `json:"peers"` // the first ones
	Services []string     `json:"services"`
}

// maxLeasePeers bounds the peers and services of a lease that are listed.
const maxLeasePeers = 32

func apiLeases(r *http.Request, devices []*device) (any, error) {
	list := []leaseInfo{}
	for _, d := range devices {
		if d.port == nil {
			continue
		}
		for _, l := range d.port.Leases() {
			info := leaseInfo{Device: d.addr(), Process: l.PID, User: l.UID, Command: clip(l.Command), Own: l.PID == os.Getpid(),
				Slot: l.Slot, Slots: l.Slots, Since: l.Since, QueuePairs: l.QPs, Connections: l.Connections,
				TxPackets: l.TxPackets, RxPackets: l.RxPackets, TxBytes: l.TxBytes, RxBytes: l.RxBytes,
				TxShm: l.TxShm, RxShm: l.RxShm, Made: l.MadeQPs, Reached: append([]owner.Peer{}, l.Reached...), Peers: []string{}, Services: []string{}}
			for _, p := range l.Peers[:min(len(l.Peers), maxLeasePeers)] {
				info.Peers = append(info.Peers, p.String())
			}
			for _, id := range l.Services[:min(len(l.Services), maxLeasePeers)] {
				info.Services = append(info.Services, fmt.Sprintf("%#016x", id))
			}
			list = append(list, info)
		}
	}
	return paged(r, list)
}
