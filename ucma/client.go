//go:build linux

package ucma

import (
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/cm"
	"github.com/gosoftroce/rocev2/ucma/abi"
	uabi "github.com/gosoftroce/rocev2/uverbs/abi"
	"github.com/gosoftroce/rocev2/uverbs/quota"
	"github.com/gosoftroce/rocev2/verbs"
)

// Device is a device that programs see.
type Device struct {
	Dev   *verbs.Device
	Index int // of the system
}

// Peer is the program that has opened the file.
type Peer struct {
	PID      int
	UID, GID uint32

	// Read copies from the program's memory. Without it what lies there
	// cannot be read: EFAULT.
	Read func(addr uint64, b []byte) error

	// File returns the client behind a file descriptor of the program, nil
	// if it is none: for MIGRATE_ID.
	File func(fd int) *Client

	// Owns reports whether a queue pair of a device is the user's. With the
	// number of another's a program could end the connection of that: a
	// peer takes it to be stale. Nil: all are.
	Owns func(dev *verbs.Device, n verbs.QPN) bool
}

// Quota bounds what a client holds. A zero field has the default that its
// comment names.
type Quota struct {
	IDs int // and multicast groups together: 4096

	// Account is of whom the client is, and pays for it; nil: nobody does.
	Account *quota.Account
}

// Client is one open file. Its methods may be called from any goroutine.
type Client struct {
	peer    Peer
	quota   Quota
	devs    func() []Device
	order   uint64 // of locks: that of the older client comes first
	wake    chan struct{}
	done    chan struct{}
	signal  *signal
	numbers *userNumbers
	account *quota.Account

	mu       sync.Mutex // guards what follows
	ch       *cm.EventChannel
	events   []*event
	idents   map[uint32]*ident
	byID     map[*cm.ID]*ident
	requests map[*cm.ID]*event // that wait in events
	groups   map[uint32]*group
	lowPorts func() bool // of who writes the command
	closed   bool
}

// Open makes a client. devs returns the devices of the moment.
func Open(p Peer, devs func() []Device, q Quota) (*Client, error) {
	if q.IDs <= 0 {
		q.IDs = 4096
	}
	s, err := newSignal()
	if err != nil {
		return nil, err
	}
	c := &Client{peer: p, quota: q, devs: devs, order: orders.Add(1), signal: s, numbers: numbersOf(p.UID), account: quota.New("an open file of the connection manager", q.Account, quota.Limits{}),
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		idents: map[uint32]*ident{}, byID: map[*cm.ID]*ident{}, requests: map[*cm.ID]*event{}, groups: map[uint32]*group{}}
	c.ch = cm.NewEventChannel(cm.WithDevicesOf(c.devices), cm.WithNotify(func() {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}))
	for _, d := range c.devices() {
		_ = cm.Start(d) // what is wrong with it shows when it is used
	}
	list(c, true)
	go c.pump()
	return c, nil
}

func (c *Client) devices() []*verbs.Device {
	var out []*verbs.Device
	for _, d := range c.devs() {
		out = append(out, d.Dev)
	}
	return out
}

// Ready returns the file that is readable while events wait: the read end of a
// pipe, to be passed to the program. It is the client's own.
func (c *Client) Ready() *os.File { return c.signal.file }

// pump takes events as they come.
func (c *Client) pump() {
	for {
		select {
		case <-c.wake:
		case <-c.done:
			return
		}
		c.mu.Lock()
		c.collect()
		c.mu.Unlock()
	}
}

// Close ends all that the client has, as the kernel does when a program closes
// the file or dies: it disconnects, rejects, and ends listeners.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	list(c, false)
	close(c.done)
	for _, i := range c.idents {
		c.numbers.forget(i)
	}
	for _, g := range c.groups {
		c.numbers.groups.give(g.number)
	}
	c.idents, c.byID, c.groups, c.events, c.requests = nil, nil, nil, nil, nil
	err := c.ch.Close()
	c.signal.close()
	c.account.Clear()
	return err
}

// Command does what the program wrote to the file.
func (c *Client) Command(b []byte) uabi.Reply { return c.CommandOf(nil, b) }

// CommandOf is Command of a process that binds to ports below 1024 only if
// lowPorts reports so (CAP_NET_BIND_SERVICE). Nil: it may.
func (c *Client) CommandOf(lowPorts func() bool, b []byte) uabi.Reply {
	cmd, errno := abi.Parse(b)
	if errno != 0 {
		return uabi.Fail(errno)
	}
	resp, errno := c.command(&cmd, lowPorts)
	if errno != 0 {
		return uabi.Fail(errno)
	}
	return uabi.Reply{N: len(b), Resp: resp}
}

func (c *Client) command(cmd *abi.Command, lowPorts func() bool) ([]byte, uabi.Errno) {
	if cmd.Number == abi.MigrateID {
		return c.migrate(cmd)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, uabi.EBADF
	case len(c.events) >= leastEvents+eventsOfID*(len(c.idents)+len(c.groups)) && !taking[cmd.Number]:
		return nil, uabi.ENOMEM
	}
	c.lowPorts = lowPorts
	defer c.collect()
	return handlers[cmd.Number](c, cmd)
}

// A program that does not take its events can have no more of them made than
// these, and so many for each ID or group.
const (
	leastEvents = 64
	eventsOfID  = 8
)

// taking are the commands that make no event, and may end some.
var taking = map[abi.Number]bool{abi.GetEvent: true, abi.DestroyID: true, abi.LeaveMulticast: true, abi.Reject: true, abi.Disconnect: true}

// handlers has what does a command; but MIGRATE_ID, which is of two clients.
var handlers = map[abi.Number]func(*Client, *abi.Command) ([]byte, uabi.Errno){
	abi.CreateID:        (*Client).createID,
	abi.DestroyID:       (*Client).destroyID,
	abi.BindIP:          (*Client).bind,
	abi.Bind:            (*Client).bind,
	abi.ResolveIP:       (*Client).resolve,
	abi.ResolveAddr:     (*Client).resolve,
	abi.ResolveRoute:    (*Client).resolveRoute,
	abi.QueryRoute:      (*Client).queryRoute,
	abi.Query:           (*Client).query,
	abi.Connect:         (*Client).connect,
	abi.Listen:          (*Client).listen,
	abi.Accept:          (*Client).accept,
	abi.Reject:          (*Client).reject,
	abi.Disconnect:      (*Client).disconnect,
	abi.InitQPAttr:      (*Client).initQPAttr,
	abi.GetEvent:        (*Client).getEvent,
	abi.SetOption:       (*Client).setOption,
	abi.Notify:          (*Client).notify,
	abi.JoinIPMulticast: (*Client).join,
	abi.JoinMulticast:   (*Client).join,
	abi.LeaveMulticast:  (*Client).leave,
}

// clients are those that are open.
var clients struct {
	mu   sync.Mutex
	open map[*Client]struct{}
}

func list(c *Client, open bool) {
	clients.mu.Lock()
	defer clients.mu.Unlock()
	if clients.open == nil {
		clients.open = map[*Client]struct{}{}
	}
	if open {
		clients.open[c] = struct{}{}
	} else {
		delete(clients.open, c)
	}
}

// DevicesChanged says that there are other devices than before. Those that have
// come count for IDs that are bound to all of them.
func DevicesChanged() {
	clients.mu.Lock()
	open := slices.Collect(maps.Keys(clients.open))
	clients.mu.Unlock()
	for _, c := range open {
		c.ch.DevicesChanged()
	}
}

// Datagrams reports whether a process has an ID of datagrams on a local
// address.
func Datagrams(pid int, local netip.Addr) bool {
	clients.mu.Lock()
	var of []*Client
	for c := range clients.open {
		if c.peer.PID == pid {
			of = append(of, c)
		}
	}
	clients.mu.Unlock()
	return slices.ContainsFunc(of, func(c *Client) bool { return c.datagramsOn(local) })
}

func (c *Client) datagramsOn(local netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range c.idents {
		if i.datagrams && !i.wild && i.id.LocalAddr().Addr() == local {
			return true
		}
	}
	return false
}

// pay reports whether the client may have one more ID or group, which then
// counts as its own.
func pay(c *Client) bool { return !full(c) && c.account.Take(quota.IDs, 1) == nil }

// full reports whether the client may have no more IDs or groups.
func full(c *Client) bool { return len(c.idents)+len(c.groups) >= c.quota.IDs }

// repay takes back what pay has counted.
func repay(c *Client) { c.account.Give(quota.IDs, 1) }

// patience is for programs of which one side connects as soon as the other one
// has decided to listen, and cannot be refused: perftest 4.5 then uses memory
// that it has freed. On a busy machine the listener comes late.
const patience = time.Second

func (c *Client) createID(cmd *abi.Command) ([]byte, uabi.Errno) {
	if cmd.Out < abi.U32Len {
		return nil, uabi.ENOSPC
	}
	in, errno := abi.ParseCreateID(cmd.In)
	if errno != 0 {
		return nil, errno
	}
	id, err := c.ch.CreateID(cm.PortSpace(in.PS), nil)
	if err != nil {
		return nil, uabi.EINVAL
	}
	_ = id.SetOption(cm.WithPatience(patience)) // it does not fail
	if cm.PortSpace(in.PS) == cm.IB {
		typ, ok := qpTypes[in.QPType]
		if ok {
			ok = id.SetOption(cm.WithType(typ)) == nil
		}
		if !ok {
			id.Close()
			return nil, uabi.EINVAL
		}
	}
	i := c.enter(id, in.UID)
	if i == nil {
		id.Close()
		return nil, uabi.ENOMEM
	}
	i.datagrams = cm.PortSpace(in.PS) == cm.UDP || cm.PortSpace(in.PS) == cm.IPoIB || qpTypes[in.QPType] == verbs.UD && cm.PortSpace(in.PS) == cm.IB
	return abi.U32(i.number), 0
}

// qpTypes are the types of queue pairs by their numbers in ibv_qp_type, as far
// as programs can have them here.
var qpTypes = map[uint8]verbs.QPType{2: verbs.RC, 3: verbs.UC, 4: verbs.UD}

func (c *Client) destroyID(cmd *abi.Command) ([]byte, uabi.Errno) {
	if cmd.Out < abi.U32Len {
		return nil, uabi.ENOSPC
	}
	in, errno := abi.ParseID(cmd.Number, cmd.In)
	if errno != 0 {
		return nil, errno
	}
	i, errno := c.find(in.ID)
	if errno != 0 {
		return nil, errno
	}
	c.numbers.forget(i)
	delete(c.idents, i.number)
	delete(c.byID, i.id)
	repay(c)
	for n, g := range c.groups {
		if g.of == i {
			delete(c.groups, n)
			c.numbers.groups.give(n)
			repay(c)
		}
	}
	i.id.Close()
	c.drop(func(e *event) bool { return e.of == i })
	return abi.U32(i.reported), 0
}
