package keychannel

import (
	"context"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/transport/guard"
)

// kind is why this side begins a handshake. Each kind has places of its own: so
// none keeps the others out.
type kind uint8

const (
	waiting  kind = iota // packets wait for keys
	renewing             // keys are old, or have sealed many packets, or nothing comes back
	known                // a packet came with an unknown key, or too many connections, with the address of a peer that there are keys of
	stranger             // with any other address
	numKinds
)

// kinds has how many handshakes of a kind are under way at the same time, half
// as many with peers with which the last one has failed, and the pause between
// two with a peer, doubled from the first to the longest as they fail. The last
// two kinds any host can cause, with all peers that there are keys of: so there
// is a rate of them in a second, and at once.
var kinds = [numKinds]struct {
	most           int
	pause, longest time.Duration
	rate           float64 // 0: no bound
}{
	waiting:  {16, 100 * time.Millisecond, 2 * time.Second, 0},
	renewing: {16, time.Second, 2 * time.Second, 0},
	known:    {16, time.Second, time.Minute, 50},
	stranger: {8, time.Second, time.Minute, 100},
}

// kindOf returns what a handshake with a peer is of; nil: it is not known.
func kindOf(p *peer, why guard.Reason) kind {
	switch {
	case why == guard.ToSend:
		return waiting
	case p == nil || len(p.Receives) == 0:
		return stranger
	case why == guard.Renew:
		return renewing
	}
	return known
}

// Want is guard.Config.Want: it begins a handshake with a peer, if there is
// reason for one, and none of late.
func (c *Channel) Want(addr netip.Addr, why guard.Reason) {
	addr = addr.Unmap().WithZone("")
	if addr == c.local && why == guard.Renew {
		c.renewOwn()
		return
	}
	if !addr.IsValid() || addr == c.local || addr.IsUnspecified() || addr.IsMulticast() || addr.Is4() != c.local.Is4() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.want(addr, why)
}

// want is Want of a peer. The caller holds mu.
func (c *Channel) want(addr netip.Addr, why guard.Reason) {
	p := c.peers[addr]
	k := kindOf(p, why)
	most := kinds[k].most
	if p != nil && p.fails > 0 {
		most /= 2
	}
	if c.closed || c.dials[k] >= most {
		return
	}
	now, has := time.Now(), p
	if has == nil {
		has = &peer{}
	}
	switch rate := kinds[k].rate; {
	case !has.may(k, now):
		return
	case why == guard.ToSend && has.Send.Number != 0:
		return
	case why != guard.ToSend && has.Send.Number != 0 && now.Sub(has.since) < fresh:
		return
	case rate > 0 && !c.begun[k].take(rate, rate, now):
		return
	}
	if p == nil {
		if p = c.enter(addr); p == nil {
			return
		}
	}
	if why == guard.Unknown {
		c.count.Hints++
	}
	p.dialing, p.tried = true, now
	c.dials[k]++
	c.wg.Go(func() { c.dial(addr, k) })
}

// may reports whether a handshake may begin now.
func (p *peer) may(k kind, now time.Time) bool {
	pause := kinds[k].pause
	if p.fails > 0 {
		pause = min(pause<<min(p.fails-1, 16), kinds[k].longest)
	}
	return !p.dialing && (p.tried.IsZero() || now.Sub(p.tried) >= pause)
}

// enter makes room for a peer, and returns it; nil if there is none.
func (c *Channel) enter(addr netip.Addr) *peer {
	failing, oldest := 0, (*peer)(nil)
	for _, p := range c.peers {
		if p.Send.Number == 0 && len(p.Receives) == 0 && !p.dialing {
			failing++
			if oldest == nil || p.tried.Before(oldest.tried) {
				oldest = p
			}
		}
	}
	if failing >= mostFailing {
		delete(c.peers, oldest.Addr)
	}
	if len(c.peers) >= guard.MostPeers+mostFailing {
		return nil
	}
	p := &peer{Peer: guard.Peer{Addr: addr}}
	c.peers[addr] = p
	return p
}

// dial connects to a peer and agrees with it.
func (c *Channel) dial(addr netip.Addr, k kind) {
	ctx, cancel := context.WithTimeout(c.ctx, handshakeTime)
	defer cancel()
	conn, err := c.cfg.Dial(ctx, addr)
	if err == nil {
		err = c.agree(ctx, conn, addr, true)
	} else {
		err = c.cfg.notConnected(err)
	}
	c.mu.Lock()
	c.dials[k]--
	if p := c.peers[addr]; p != nil {
		p.dialing = false
		if p.fails++; err == nil {
			p.fails = 0
		}
	}
	c.mu.Unlock()
	if err != nil {
		c.failed(addr, err, true)
	}
}
