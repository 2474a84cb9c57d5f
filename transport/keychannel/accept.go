package keychannel

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/gosoftroce/rocev2/transport/guard"
)

// inbound bounds the connections of peers: any host can connect.
type inbound struct {
	open    []*arrival // the oldest first
	buckets map[netip.Addr]*bucket
}

// arrival is a connection that is not authenticated yet.
type arrival struct {
	net.Conn
	from netip.Addr
}

const (
	mostArrivals = 64 // at the same time, and of one address:
	mostOfOne    = 4

	// Handshakes of one address in a second, and at once.
	arrivalRate, arrivalBurst = 5, 20
	mostBuckets               = 4096
)

// bucket holds what is left of a rate.
type bucket struct {
	left float64
	at   time.Time
}

func (n *inbound) init() { n.buckets = map[netip.Addr]*bucket{} }

// may reports whether an address may begin a handshake now.
func (n *inbound) may(from netip.Addr, now time.Time) bool {
	b := n.buckets[from]
	if b == nil {
		if len(n.buckets) >= mostBuckets {
			clear(n.buckets)
		}
		b = &bucket{arrivalBurst, now}
		n.buckets[from] = b
	}
	return b.take(arrivalRate, arrivalBurst, now)
}

// take takes one, if there is one.
func (b *bucket) take(rate, most float64, now time.Time) bool {
	b.left = min(b.left+now.Sub(b.at).Seconds()*rate, most)
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// victim returns which connection makes room: the oldest one of the network
// that has the most of them, of some size and then of a smaller one. So a host
// with a whole network of addresses pushes out its own.
func (n *inbound) victim() int {
	among := make([]int, len(n.open))
	for i := range among {
		among[i] = i
	}
	for _, bits := range [][2]int{{16, 48}, {24, 64}} { // of IPv4, IPv6
		networks, most := map[netip.Prefix][]int{}, []int(nil)
		for _, i := range among {
			from := n.open[i].from
			size := bits[1]
			if from.Is4() {
				size = bits[0]
			}
			p, err := from.Prefix(size)
			if err != nil { // it has none
				return i
			}
			if networks[p] = append(networks[p], i); len(networks[p]) > len(most) {
				most = networks[p]
			}
		}
		among = most
	}
	return among[0]
}

// accept takes connections until the listener is closed.
func (c *Channel) accept() {
	for pause := time.Millisecond; ; {
		conn, err := c.ln.Accept()
		switch {
		case err == nil:
			pause = time.Millisecond
			c.arrive(conn)
		case c.ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default: // out of descriptors
			select {
			case <-time.After(pause):
			case <-c.ctx.Done():
				return
			}
			pause = min(2*pause, time.Second)
		}
	}
}

// arrive gives a connection a place, and agrees with its peer. Another one that
// is not done makes room.
func (c *Channel) arrive(conn net.Conn) {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	a := &arrival{conn, at.Addr().Unmap().WithZone("")}
	c.mu.Lock()
	defer c.mu.Unlock()
	n, of := &c.inbound, 0
	for _, o := range n.open {
		if o.from == a.from {
			of++
		}
	}
	if err != nil || c.closed || a.from == c.local || of >= mostOfOne || !n.may(a.from, time.Now()) {
		c.count.Refused++
		conn.Close()
		if err == nil && a.from != c.local {
			// It may be the peer's, whose places another process of
			// its host has. That one cannot take what comes to the
			// peer's port.
			c.want(a.from, guard.Unknown)
		}
		return
	}
	if len(n.open) >= mostArrivals {
		c.count.Refused++
		i := n.victim()
		n.open[i].Close()
		n.open = slices.Delete(n.open, i, i+1)
	}
	n.open = append(n.open, a)
	c.wg.Go(func() {
		if err := c.agree(c.ctx, conn, a.from, false); err != nil {
			c.failed(a.from, err, false)
		}
		c.leave(a)
	})
}

func (c *Channel) leave(a *arrival) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.inbound.open, a); i >= 0 {
		c.inbound.open = slices.Delete(c.inbound.open, i, i+1)
	}
}

func (c *Channel) inboundClose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.inbound.open {
		a.Close()
	}
}
