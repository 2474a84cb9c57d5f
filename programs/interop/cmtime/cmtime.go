// Package cmtime speaks the protocol of cmtime (rdma-core 44): a client makes
// many connections at once by the connection manager, sends nothing over them,
// ends them, and says how long each step took. The server accepts.
package cmtime

import (
	"cmp"
	"net"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/verbs"
)

// DefaultPort is the port, of the TCP port space of the connection manager.
const DefaultPort = 7471

// Defaults of Config, those of the original.
const (
	DefaultConnections = 100
	DefaultRetries     = 2
	DefaultTimeout     = 2 * time.Second
)

// Limits of Config.
const (
	MaxConnections = 50000
	MaxRetries     = 7
)

// Config says what to run.
type Config struct {
	Connections int           // client: how many it makes; 0 means DefaultConnections
	Retries     int           // client: of the resolution of an address or a route; 0 means DefaultRetries, a negative number none
	Timeout     time.Duration // client: of the same; 0 means DefaultTimeout
	Bind        bool          // client: it binds its connections to the device's address before anything else

	TrafficClass uint8

	// Clients is how many connections a server serves before it ends; 0
	// means without end.
	Clients int
	// AtOnce bounds the connections that a server has at a time; 0 means
	// MaxConnections. Others are rejected.
	AtOnce int

	// IdleTimeout ends a client to which nothing happens for so long, and
	// a server's connection that lasts so long; 0 means 60 s.
	IdleTimeout time.Duration

	// OnStep, if set, is called when a step of a client begins.
	OnStep func(Step)
	// OnListen, if set, is called by Serve once clients can connect.
	OnListen func()
	// OnClient, if set, is called by Serve when it is done with a
	// connection, accepted or not, from several goroutines at once. The
	// duration is for how long it lasted.
	OnClient func(from net.Addr, lasted time.Duration, err error)
}

// Step is a step of a client.
type Step uint8

// Steps, in their order.
const (
	CreateID Step = iota
	BindAddr      // only with Config.Bind
	ResolveAddr
	ResolveRoute
	CreateQP
	Connect
	Disconnect
	Destroy
	steps
)

// Steps lists all of them.
var Steps = []Step{CreateID, BindAddr, ResolveAddr, ResolveRoute, CreateQP, Connect, Disconnect, Destroy}

// String returns the name that the original has for the step: "create id".
func (s Step) String() string {
	names := [...]string{"create id", "bind addr", "resolve addr", "resolve route", "create qp", "connect", "disconnect", "destroy"}
	if int(s) < len(names) {
		return names[s]
	}
	return "?"
}

// Timing is how long a step took.
type Timing struct {
	Total    time.Duration // of all connections together, from the first to the last
	Max, Min time.Duration // of one connection
}

// Result is what a client has measured.
type Result struct {
	Connections int
	Steps       [steps]Timing // by Step; zero for BindAddr without Config.Bind
}

// PerConnection returns the time of a step divided by the number of
// connections.
func (r *Result) PerConnection(s Step) time.Duration {
	return r.Steps[s].Total / time.Duration(max(r.Connections, 1))
}

// Check returns nil if the configuration can be run on dev, else an
// *interop.ConfigError.
func (c Config) Check(dev *verbs.Device) error {
	_, err := c.withDefaults(dev)
	return err
}

func (c Config) withDefaults(dev *verbs.Device) (Config, error) {
	c.Connections = cmp.Or(c.Connections, DefaultConnections)
	c.Retries = max(cmp.Or(c.Retries, DefaultRetries), 0)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.AtOnce = cmp.Or(c.AtOnce, MaxConnections)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, time.Minute)
	most := min(MaxConnections, dev.Query().MaxQP)
	switch {
	case c.Connections < 1 || c.Connections > most || c.Clients < 0:
		return c, interop.BadConfig("cmtime: the number of connections is %d; it must be between 1 and %d", c.Connections, most)
	case c.Retries > MaxRetries:
		return c, interop.BadConfig("cmtime: the number of retries is %d; it must be between 0 and %d", c.Retries, MaxRetries)
	case c.Timeout < 0 || c.IdleTimeout < 0 || c.AtOnce < 0:
		return c, interop.BadConfig("cmtime: a limit is negative")
	}
	return c, nil
}
