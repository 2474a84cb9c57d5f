package keychannel

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/internal/counters"
	"github.com/gosoftroce/rocev2/transport/guard"
)

// Channel agrees with peers on keys. Its methods may be called from any
// goroutine.
type Channel struct {
	cfg    Config
	local  netip.Addr // without zone
	tls    atomic.Pointer[tls.Config]
	ctx    context.Context
	cancel context.CancelFunc
	ln     net.Listener
	wg     sync.WaitGroup

	mu      sync.Mutex // guards what follows
	peers   map[netip.Addr]*peer
	numbers map[uint16]bool // that are in use
	dials   [numKinds]int   // that are under way
	begun   [numKinds]bucket
	own     guard.Peer // keys of the address with itself, where guard.SealsOwn
	ownMade time.Time
	inbound inbound
	count   Counters
	sweep   *time.Timer
	closed  bool
}

// peer is what is known of one.
type peer struct {
	guard.Peer
	name  string
	since time.Time  // of the keys to send
	in    []incoming // of Receives
	first bool       // this side has connected

	dialing bool
	tried   time.Time // when this side has connected last
	fails   int       // since there were keys
	err     error     // of the last handshake; nil: it has succeeded
	erred   time.Time
}

// Counters are what a Channel has done.
type Counters struct {
	Agreed  uint64 `name:"keys_agreed" help:"handshakes with peer hosts that gave keys"`
	Failed  uint64 `name:"keys_failed" help:"handshakes with peer hosts that failed"`
	Refused uint64 `name:"keys_refused" help:"connections of peer hosts that were closed at once: there were too many"`
	Hints   uint64 `name:"keys_hints" help:"handshakes begun as packets came with an unknown key, as after a restart, or as a host had connected too often"`
}

// Each calls f for every counter with its name, in fixed order.
func (c *Counters) Each(f func(name string, value uint64)) { counters.Each(c, f) }

// Help returns what the counter of a name of Each counts.
func (c *Counters) Help(name string) string { return counters.Help(c, name) }

const (
	sweepEvery = 10 * time.Second

	// fresh is for how long keys are not followed by others, whatever is
	// wanted.
	fresh = time.Second

	// Peers without keys that are remembered, with what was wrong, and for
	// how long after the last try.
	mostFailing   = 256
	forgetFailing = 10 * time.Minute
)

// Open begins to listen for peers.
func Open(cfg Config) (*Channel, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	ln, err := cfg.Listen()
	if err != nil {
		return nil, err
	}
	c := &Channel{cfg: cfg, local: cfg.Addr.Unmap().WithZone(""), ln: ln, peers: map[netip.Addr]*peer{}, numbers: map[uint16]bool{}}
	c.inbound.init()
	c.tls.Store(cfg.TLS)
	c.renewOwn()
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.mu.Lock() // look waits until sweep is there
	c.sweep = time.AfterFunc(sweepEvery, c.look)
	c.mu.Unlock()
	c.wg.Go(c.accept)
	return c, nil
}

// SetTLS has handshakes from now on use another configuration. After an error,
// which is one that Open would have returned, they use that of before.
func (c *Channel) SetTLS(t *tls.Config) error {
	if err := checkTLS(t); err != nil {
		return err
	}
	c.tls.Store(t)
	return nil
}

// Counters returns what was done.
func (c *Channel) Counters() Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// State is what there is of a peer.
type State struct {
	Addr  netip.Addr
	Name  string    // that Config.Allow has returned
	Since time.Time // of the keys; zero: there are none
	Err   error     // of the last handshake, as Config.Explain has it; nil: it has succeeded
	At    time.Time // of Err
}

// States returns what there is of each peer, in the order of their addresses.
func (c *Channel) States() (list []State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for a, p := range c.peers {
		list = append(list, State{a, p.name, p.since, p.err, p.erred})
	}
	slices.SortFunc(list, func(a, b State) int { return a.Addr.Compare(b.Addr) })
	return list
}

// failed counts a handshake that has failed, and tells of it. A peer that is
// not known yet is not remembered for that it has connected: any host can.
func (c *Channel) failed(addr netip.Addr, err error, began bool) {
	if c.ctx.Err() != nil {
		return
	}
	f := Failure{Peer: addr, Err: c.cfg.Explain(err), Began: began}
	c.mu.Lock()
	c.count.Failed++
	if p := c.peers[addr]; p != nil {
		p.err, p.erred, f.Since = f.Err, time.Now(), p.since
	}
	c.mu.Unlock()
	if c.cfg.Failed != nil {
		c.cfg.Failed(f)
	}
}

// sends has what goes to a peer sealed with a key.
func (c *Channel) sends(addr netip.Addr, s *guard.Secret, name string, client bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[addr]
	if p == nil || c.closed {
		return
	}
	first := p.Send.Number == 0
	p.Send, p.name, p.since, p.first, p.fails, p.err = *s, name, time.Now(), client, 0, nil
	c.cfg.Table.Set(&p.Peer)
	c.count.Agreed++
	if first {
		c.cfg.Log.Info("keys agreed with a peer host", "device", c.local, "peer", addr, "name", name, "cipher", s.Version)
	}
}

// look forgets keys that others have followed, and renews old ones.
func (c *Channel) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	now := time.Now()
	for addr, p := range c.peers {
		if c.forgetFollowed(p, now) {
			c.cfg.Table.Set(&p.Peer)
		}
		age, renew := now.Sub(p.since), RenewAfter
		if !p.first {
			renew += renewLater
		}
		switch {
		case p.Send.Number == 0 && len(p.in) == 0:
			if !p.dialing && now.Sub(p.tried) > forgetFailing {
				delete(c.peers, addr)
			}
		case p.Send.Number == 0 && now.Sub(p.in[0].begun) > Overlap, p.Send.Number != 0 && age > forgetAfter:
			for len(p.in) > 0 {
				c.forget(p, 0)
			}
			delete(c.peers, addr)
			c.cfg.Table.Remove(addr)
		case p.Send.Number != 0 && age > renew:
			c.wg.Go(func() { c.Want(addr, guard.Renew) })
		}
	}
	if now.Sub(c.ownMade) > RenewAfter {
		c.wg.Go(c.renewOwn)
	}
	c.sweep.Reset(sweepEvery)
}

// Close ends all handshakes, and forgets all keys.
func (c *Channel) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return errClosed
	}
	c.closed = true
	c.sweep.Stop()
	c.mu.Unlock()
	c.cancel()
	err := c.ln.Close()
	c.inboundClose()
	c.wg.Wait()
	c.cfg.Table.Clear()
	return err
}
