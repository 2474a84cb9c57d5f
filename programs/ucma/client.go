//go:build linux

package ucma

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/programs/ucma/abi"
	uabi "github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// Device is a device that programs see.
type Device struct {
	Dev   *verbs.Device
	Index int // of the system
}

// Program is what a client knows of the program that it is in.
type Program struct {
	// Read copies from the program's memory.
	Read func(addr uint64, b []byte) error

	// File returns the client of a file descriptor of the program, nil if
	// it is none: for MIGRATE_ID.
	File func(fd int) *Client

	// LowPorts reports whether it may have ports below 1024
	// (CAP_NET_BIND_SERVICE). Nil: it may.
	LowPorts func() bool
}

// Client is one open file. Its methods may be called from any goroutine.
type Client struct {
	program Program
	devs    func() []Device
	wake    chan struct{}
	done    chan struct{}
	signal  *signal

	// Guarded by mu:
	ch     *cm.EventChannel
	queue  eventQueue
	ids    idTable
	closed bool
}

// mu guards all clients: they are of one program, and an ID may go from one to
// another.
var mu sync.Mutex

// open are the clients that are.
var open = map[*Client]struct{}{}

// Open makes a client. devs returns the devices of the moment.
func Open(p Program, devs func() []Device) (*Client, error) {
	s, err := newSignal()
	if err != nil {
		return nil, err
	}
	c := &Client{program: p, devs: devs, signal: s,
		wake: make(chan struct{}, 1), done: make(chan struct{}), queue: newEventQueue(), ids: newIDTable()}
	c.ch = cm.NewEventChannel(cm.WithDevicesOf(c.devices), cm.WithNotify(func() {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}))
	for _, d := range c.devices() {
		_ = cm.Start(d) // what is wrong with it shows when it is used
	}
	mu.Lock()
	open[c] = struct{}{}
	mu.Unlock()
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
// pipe. The caller closes it.
func (c *Client) Ready() int { return c.signal.file }

// Events changes when events have come.
func (c *Client) Events() uint64 { return c.signal.count.Load() }

// Files returns the files that the client has for itself, besides Ready.
func (c *Client) Files() []int { return []int{c.signal.read, c.signal.write} }

// pump takes events as they come.
func (c *Client) pump() {
	for {
		select {
		case <-c.wake:
		case <-c.done:
			return
		}
		mu.Lock()
		c.collect()
		mu.Unlock()
	}
}

// Close ends all that the client has, as the kernel does when a program closes
// the file or dies: it disconnects, rejects, and ends listeners.
func (c *Client) Close() error {
	mu.Lock()
	defer mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	delete(open, c)
	close(c.done)
	c.ids.clear()
	c.queue = eventQueue{}
	err := c.ch.Close()
	c.signal.close()
	return err
}

// Command does what the program wrote to the file.
func (c *Client) Command(b []byte) uabi.Reply {
	cmd, errno := abi.Parse(b)
	if errno != 0 {
		return uabi.Fail(errno)
	}
	resp, errno := c.command(&cmd)
	if errno != 0 {
		return uabi.Fail(errno)
	}
	return uabi.Reply{N: len(b), Resp: resp}
}

func (c *Client) command(cmd *abi.Command) ([]byte, uabi.Errno) {
	mu.Lock()
	defer mu.Unlock()
	switch {
	case c.closed:
		return nil, uabi.EBADF
	case len(c.queue.list) >= leastEvents+eventsOfID*c.ids.size() && !taking[cmd.Number]:
		return nil, uabi.ENOMEM
	}
	h := &handlers[cmd.Number]
	if cmd.Out < h.room {
		return nil, uabi.ENOSPC
	}
	defer c.collect()
	return h.do(c, cmd)
}

// A program that does not take its events can have no more of them made than
// leastEvents, plus eventsOfID for each ID or group.
const (
	leastEvents = 64
	eventsOfID  = 8
)

// taking are the commands that make no event, and may end some.
var taking = map[abi.Number]bool{abi.GetEvent: true, abi.DestroyID: true, abi.LeaveMulticast: true, abi.Reject: true, abi.Disconnect: true, abi.MigrateID: true}

// handler does a command.
type handler func(*Client, *abi.Command) ([]byte, uabi.Errno)

// handlers has them by the numbers of the commands, with the room that the
// answer needs.
var handlers = [abi.Numbers]struct {
	room int
	do   handler
}{
	abi.CreateID:        {abi.U32Len, parsed(abi.Decode[abi.CreateIDCmd], (*Client).createID)},
	abi.DestroyID:       {abi.U32Len, parsed(abi.ParseID, (*Client).destroyID)},
	abi.BindIP:          {0, parsed(abi.ParseBind, (*Client).bind)},
	abi.Bind:            {0, parsed(abi.ParseBind, (*Client).bind)},
	abi.ResolveIP:       {0, parsed(abi.ParseResolve, (*Client).resolve)},
	abi.ResolveAddr:     {0, parsed(abi.ParseResolve, (*Client).resolve)},
	abi.ResolveRoute:    {0, onID((*Client).resolveRoute)},
	abi.QueryRoute:      {0, (*Client).queryRoute},
	abi.Query:           {0, (*Client).query},
	abi.Connect:         {0, parsed(abi.ParseConnect, (*Client).connect)},
	abi.Listen:          {0, onID((*Client).listen)},
	abi.Accept:          {0, parsed(abi.ParseConnect, (*Client).accept)},
	abi.Reject:          {0, parsed(abi.Decode[abi.RejectCmd], (*Client).reject)},
	abi.Disconnect:      {0, onID((*Client).disconnect)},
	abi.InitQPAttr:      {binary.Size(uabi.QPAttr{}), onID((*Client).initQPAttr)},
	abi.GetEvent:        {abi.EventOldLen, (*Client).getEvent},
	abi.SetOption:       {0, parsed(abi.Decode[abi.SetOptionCmd], (*Client).setOption)},
	abi.Notify:          {0, onID((*Client).notify)},
	abi.JoinIPMulticast: {abi.U32Len, parsed(abi.ParseJoin, (*Client).join)},
	abi.JoinMulticast:   {abi.U32Len, parsed(abi.ParseJoin, (*Client).join)},
	abi.MigrateID:       {0, parsed(abi.ParseID, (*Client).migrate)},
	abi.LeaveMulticast:  {abi.U32Len, parsed(abi.ParseID, (*Client).leave)},
}

// parsed is the handler of a command with what parse decodes.
func parsed[T any](parse func(abi.Number, []byte) (T, uabi.Errno), do func(*Client, *T) ([]byte, uabi.Errno)) handler {
	return func(c *Client, cmd *abi.Command) ([]byte, uabi.Errno) {
		in, errno := parse(cmd.Number, cmd.In)
		if errno != 0 {
			return nil, errno
		}
		return do(c, &in)
	}
}

// onID is that of a command that names an ID, and has another value.
func onID(do func(c *Client, i *ident, value uint32) ([]byte, uabi.Errno)) handler {
	return parsed(abi.ParseID, func(c *Client, in *abi.IDCmd) ([]byte, uabi.Errno) {
		i, errno := c.ids.usable(in.ID)
		if errno != 0 {
			return nil, errno
		}
		return do(c, i, in.Value)
	})
}

// Datagrams reports whether the program has an ID of datagrams on a local
// address.
func Datagrams(local netip.Addr) bool {
	mu.Lock()
	defer mu.Unlock()
	for c := range open {
		for _, i := range c.ids.idents {
			if i.datagrams && !i.wild && i.id.LocalAddr().Addr() == local {
				return true
			}
		}
	}
	return false
}

// patience is for programs of which one side connects as soon as the other one
// has decided to listen, and cannot be refused: perftest 4.5 then uses memory
// that it has freed. On a busy machine the listener comes late.
const patience = time.Second

func (c *Client) createID(in *abi.CreateIDCmd) ([]byte, uabi.Errno) {
	id, err := c.ch.CreateID(cm.PortSpace(in.PS), nil)
	if err != nil {
		return nil, uabi.EINVAL
	}
	// Neither fails.
	_ = id.SetOption(cm.WithPatience(patience))
	_ = id.SetOption(cm.WithAckTimeout(ackTimeout))
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
	i := c.ids.enter(id, in.UID)
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

func (c *Client) destroyID(in *abi.IDCmd) ([]byte, uabi.Errno) {
	i, errno := c.ids.find(in.ID)
	if errno != 0 {
		return nil, errno
	}
	c.ids.remove(i)
	i.id.Close()
	c.queue.drop(func(e *event) bool { return e.of == i })
	return abi.U32(i.reported), 0
}
