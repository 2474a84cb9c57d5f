package cm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/verbs"
)

// Listeners are listeners on one port of several devices. One Accept takes the
// requests of all.
type Listeners struct {
	list  []*Listener
	addr  Addr
	ready *task.Bell // of each of them
	turn  atomic.Uint32
}

// ListenAll is Listen on several devices, at least one. The address is what
// Addr returns, with the port: the unspecified one where they are all of the
// host, or that of the first. Port 0 stands for one that is free on each.
func ListenAll(devs []*verbs.Device, addr netip.AddrPort, cfg ListenConfig) (*Listeners, error) {
	if len(devs) == 0 || slices.Contains(devs, nil) {
		return nil, errors.New("cm: no device")
	}
	for try := 0; ; try++ {
		ls, err := listenAll(devs, addr, cfg)
		if used := (*PortError)(nil); addr.Port() == 0 && try < portTries && errors.As(err, &used) {
			continue // the port that is free on one device is not on another
		}
		return ls, err
	}
}

// portTries is how many ports are tried until one is free on each device.
const portTries = 16

func listenAll(devs []*verbs.Device, addr netip.AddrPort, cfg ListenConfig) (*Listeners, error) {
	ls := &Listeners{ready: verbs.HCA(devs[0]).Tasks().NewBell()}
	port := addr.Port()
	for _, dev := range devs {
		l, err := listenShared(dev, netip.AddrPortFrom(dev.Addr(), port), cfg, ls.ready)
		if err != nil {
			ls.Close()
			return nil, err
		}
		ls.list = append(ls.list, l)
		port = l.addr.Port()
	}
	ls.addr = Addr{netip.AddrPortFrom(addr.Addr(), port), ls.list[0].cfg.Space}
	return ls, nil
}

// Addr returns the address, with the port that was chosen: an *Addr.
func (ls *Listeners) Addr() net.Addr { return &ls.addr }

// Addrs returns the address on each device: each is an *Addr.
func (ls *Listeners) Addrs() (addrs []net.Addr) {
	for _, l := range ls.list {
		addrs = append(addrs, l.Addr())
	}
	return addrs
}

// Accept waits for the next request; see Listener.Accept. A device that is
// closed has none any more. When all are, the error wraps ErrClosed.
func (ls *Listeners) Accept(ctx context.Context) (*Request, error) {
	return accept(ctx, ls.ready, &ls.addr, ls.next)
}

// next looks at the listeners in turn.
func (ls *Listeners) next() (*Request, error) {
	first := int(ls.turn.Add(1))
	closed := 0
	for i := range ls.list {
		r, err := ls.list[(first+i)%len(ls.list)].poll()
		if r != nil {
			ls.ready.Ring() // another Accept may wait, for another device
			return r, nil
		}
		if err != nil {
			closed++
		}
	}
	if closed == len(ls.list) {
		ls.ready.Ring() // for the next Accept that waits
		return nil, fmt.Errorf("cm: accept on %v: %w", &ls.addr, ErrClosed)
	}
	return nil, nil
}

// Greet is Listener.Greet for each.
func (ls *Listeners) Greet(g Greeter) {
	for _, l := range ls.list {
		l.Greet(g)
	}
}

// Close ends the listeners; see Listener.Close.
func (ls *Listeners) Close() error {
	for _, l := range ls.list {
		l.Close()
	}
	return nil
}
