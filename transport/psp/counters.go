package psp

import (
	"sync/atomic"

	"github.com/gosoftroce/rocev2/internal/counters"
)

// Counters are what a Link has sealed, opened and dropped, in packets. Each
// field has its name and what it counts as tags.
type Counters struct {
	Sealed  uint64 `name:"psp_sealed" help:"packets that left sealed"`
	NoKey   uint64 `name:"psp_no_key" help:"packets that did not leave because their security association has no key, or has sealed as many packets with it as it may"`
	Rekeys  uint64 `name:"psp_rekeys" help:"new keys of security associations, one for both directions of a connection"`
	Opened  uint64 `name:"psp_opened" help:"sealed packets that were opened"`
	Unknown uint64 `name:"psp_unknown_spi" help:"sealed packets dropped: no security association has their SPI, or not yet"`
	Ended   uint64 `name:"psp_ended" help:"sealed packets dropped: the key of their security association has ended, as there are newer ones"`
	Peer    uint64 `name:"psp_wrong_peer" help:"sealed packets dropped: they came from another address than the peer of their security association"`
	Format  uint64 `name:"psp_malformed" help:"sealed packets dropped: their header is none, or of another version than their key, or there is no packet in them"`
	Replays uint64 `name:"psp_replayed" help:"sealed packets dropped: they had come before"`
	Stale   uint64 `name:"psp_stale" help:"sealed packets dropped: they came too late to know whether they had come before"`
	Forged  uint64 `name:"psp_forged" help:"sealed packets dropped: their integrity check value is wrong"`
}

// Each calls f for every counter with its name, in fixed order.
func (c *Counters) Each(f func(name string, value uint64)) { counters.Each(c, f) }

// Help returns what the counter of a name of Each counts.
func (c *Counters) Help(name string) string { return counters.Help(c, name) }

// counts are Counters while others read. A call adds once, not each packet.
type counts struct {
	sealed, noKey, rekeys, opened, unknown, ended, peer, format, replays, stale, forged atomic.Uint64
}

func (c *counts) load() Counters {
	return Counters{
		Sealed: c.sealed.Load(), NoKey: c.noKey.Load(), Rekeys: c.rekeys.Load(), Opened: c.opened.Load(), Unknown: c.unknown.Load(),
		Ended: c.ended.Load(), Peer: c.peer.Load(), Format: c.format.Load(), Replays: c.replays.Load(), Stale: c.stale.Load(), Forged: c.forged.Load(),
	}
}

// received adds what a call of Recv has counted.
func (c *counts) received(n *Counters) {
	c.opened.Add(n.Opened)
	if n.Unknown|n.Ended|n.Peer|n.Format|n.Replays|n.Stale|n.Forged == 0 {
		return
	}
	c.unknown.Add(n.Unknown)
	c.ended.Add(n.Ended)
	c.peer.Add(n.Peer)
	c.format.Add(n.Format)
	c.replays.Add(n.Replays)
	c.stale.Add(n.Stale)
	c.forged.Add(n.Forged)
}
