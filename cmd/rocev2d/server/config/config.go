package config

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os/user"
	"strconv"
	"time"

	"github.com/gosoftroce/rocev2/rdma/secure"
)

// Config is what the daemon does.
type Config struct {
	File    string        // where it was read from; empty: there is none
	Drain   time.Duration // how long transfers under way may go on after SIGTERM
	Log     Log
	Admin   Admin
	TLS     TLS
	Devices []Device

	// Congestion chooses congestion control of devices that choose none:
	// see verbs.Config.
	Congestion string

	// Strict and Profile are strict mode of devices that say nothing of it:
	// see verbs.Config.
	Strict, Profile string

	Regions  []Region
	Targets  Targets
	Programs Programs
	Capture  Capture

	where map[string]string // of a setting: the line or the flag that it came from
	wrong map[string]bool   // settings of which a mistake has been told
}

// Log says what is logged and how.
type Log struct {
	Level  slog.Level
	Format string // "text" or "json"
}

// Admin is the HTTP listener: page, metrics, JSON interface, captures.
type Admin struct {
	Listen    string   // "HOST:PORT", port 0 chooses one; empty: there is none
	Token     string   // of "Authorization: Bearer"; empty: none is needed, which only loopback may have
	TokenFile string   // where Token was read from
	Hosts     []string // names in the Host header beside the address itself and localhost
	PProf     bool     // serve /debug/pprof
	Health    string   // "HOST:PORT" where /healthz and /readyz are answered, and nothing else, without a token; empty: there is none
}

// Device is one RoCEv2 device on one local address.
type Device struct {
	Address    string // an address of this host, or an interface
	Shards     int    // 0 means 1
	RecvBuffer int    // bytes; 0 means the default of package verbs
	SendBuffer int    // bytes; 0 means the default of package verbs
	Regions    int    // port (RDMA port space TCP) where regions are served; 0: nowhere
	Shm        bool   // memory is shared with other processes of this host
	Congestion string // congestion control, see verbs.Config; empty: Config.Congestion
	Strict     string // rules of strict mode, see verbs.Config; empty: Config.Strict
	Profile    string // limits of an adapter, see verbs.Config; empty: Config.Profile
	Guard      Guard  // all packets are sealed
}

// Access says what clients may do with a region.
type Access string

// Kinds of access.
const (
	ReadOnly  Access = "read-only"  // RDMA READ
	ReadWrite Access = "read-write" // RDMA READ, WRITE, atomics
)

// Region is memory that clients find by its name.
type Region struct {
	Name   string
	Size   int64          // bytes; 0: all of File
	File   string         // that the memory is; empty: anonymous memory
	Access Access         // what clients may do
	Allow  []netip.Prefix // which clients may use it; empty, and Names, too: hosts of this machine alone
	Names  []secure.Name  // of certificates, whose clients may, too; then only secured connections get it
	Any    bool           // all clients may
	TLS    bool           // only secured connections get it
	Device string         // the address of the device that has it; empty: all have
}

// Targets are the servers of the field's own tools.
type Targets struct {
	Enabled bool
	Only    []string       // names of those to run; empty: all
	Ports   map[string]int // other ports than the usual ones, by name
	Groups  []string       // multicast groups of mckey
	Root    string         // directory that rcopy writes below; empty: rcopy is not answered
	Largest int            // bytes of a file that rcopy takes; 0: no limit
	Any     bool           // clients may name any address for their traffic, see interop.Peers
	Clients int            // at the same time, of all targets together
}

// Programs is for the programs that share the devices' ports with the daemon:
// unmodified verbs programs of this host, and Go programs. A number that is 0
// stands for what is usual.
type Programs struct {
	Dir    string   // of the owners' sockets, and of what programs see as sysfs; empty: only the daemon's own user finds the ports, and without a tree
	Users  []string // names or numbers of those who may; empty: root and the daemon's own user
	Groups []string // names or numbers of groups whose members may, too
	Any    bool     // every user may

	Lease LeaseQuota // what one process may have on a device
}

// LeaseQuota bounds a lease. A number that is 0 stands for what is usual.
type LeaseQuota struct {
	QPs     int // queue pairs
	Buffers int // bytes of the receive buffer of a socket, and of the send buffer
	MADs    int // management datagrams in a second, each way
	PerUser int // leases of one user on a device
}

// UIDs returns the numbers of Users.
func (p *Programs) UIDs() ([]uint32, error) {
	var list []uint32
	for _, name := range p.Users {
		n, err := strconv.ParseUint(name, 10, 32)
		if err != nil {
			u, err := user.Lookup(name)
			if err != nil {
				return nil, fmt.Errorf("%q is neither a user of this host, nor a number, nor \"any\"", name)
			}
			if n, err = strconv.ParseUint(u.Uid, 10, 32); err != nil {
				return nil, fmt.Errorf("%q: users of this system have no numbers", name)
			}
		}
		list = append(list, uint32(n))
	}
	return list, nil
}

// Capture bounds the recording of packets.
type Capture struct {
	Bytes int // of memory that all packets of a recording take at most
}

// Defaults.
const (
	DefaultDrain       = 10 * time.Second
	DefaultAdmin       = "127.0.0.1:14791"
	DefaultRegionsPort = 7470
	DefaultCapture     = 16 << 20
	DefaultClients     = 64
)

// Default returns what holds where nothing is said: no device, no region.
func Default() *Config {
	return &Config{
		Drain:   DefaultDrain,
		Log:     Log{Level: slog.LevelInfo, Format: "text"},
		Admin:   Admin{Listen: DefaultAdmin},
		Targets: Targets{Enabled: true, Ports: map[string]int{}, Clients: DefaultClients},
		Capture: Capture{Bytes: DefaultCapture},
		where:   map[string]string{},
		wrong:   map[string]bool{},
	}
}

// Allowed reports whether a client at an address may use the region, whatever
// its certificate is.
func (r *Region) Allowed(client netip.Addr) bool {
	client = client.Unmap().WithZone("")
	if r.Any {
		return true
	}
	if len(r.Allow)+len(r.Names) == 0 {
		return client.IsLoopback()
	}
	for _, p := range r.Allow {
		if p.Contains(client) {
			return true
		}
	}
	return false
}
