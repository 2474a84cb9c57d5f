package guard

import (
	"sync/atomic"

	"github.com/gosoftroce/rocev2/internal/counters"
)

// Counters are what a Link has sealed, opened and dropped, in packets. Each
// field has its name and what it counts as tags.
type Counters struct {
	Sealed    uint64 `name:"guard_sealed" help:"packets that left sealed"`
	Opened    uint64 `name:"guard_opened" help:"sealed packets that were opened"`
	Waited    uint64 `name:"guard_waited" help:"packets that have waited for keys of their peer"`
	NoKeys    uint64 `name:"guard_no_keys" help:"packets that did not leave: there are no keys of their peer, or those have sealed as many packets as they may, or the packets had waited, and could not be sent then"`
	Multicast uint64 `name:"guard_multicast" help:"packets to multicast groups that did not leave: those are not sealed"`
	Clear     uint64 `name:"guard_clear" help:"packets dropped that came in clear"`
	Unknown   uint64 `name:"guard_unknown_spi" help:"sealed packets dropped: there is no key with their SPI"`
	Peer      uint64 `name:"guard_wrong_peer" help:"sealed packets dropped: they came from another address than the peer of their key"`
	Astray    uint64 `name:"guard_astray" help:"sealed packets dropped: they came to another socket of the port than they are for"`
	Format    uint64 `name:"guard_malformed" help:"sealed packets dropped: their header is none, or there is no packet in them"`
	Replays   uint64 `name:"guard_replayed" help:"sealed packets dropped: they had come before"`
	Stale     uint64 `name:"guard_stale" help:"sealed packets dropped: they came too late to know whether they had come before"`
	Forged    uint64 `name:"guard_forged" help:"sealed packets dropped: their integrity check value is wrong"`
}

// Each calls f for every counter with its name, in fixed order.
func (c *Counters) Each(f func(name string, value uint64)) { counters.Each(c, f) }

// Help returns what the counter of a name of Each counts.
func (c *Counters) Help(name string) string { return counters.Help(c, name) }

// counts are Counters while others read.
type counts struct {
	sealed, opened, waited, noKeys, multicast, clear, unknown, peer, astray, format, replays, stale, forged atomic.Uint64
}

func (c *counts) load() Counters {
	return Counters{
		Sealed: c.sealed.Load(), Opened: c.opened.Load(), Waited: c.waited.Load(), NoKeys: c.noKeys.Load(), Multicast: c.multicast.Load(),
		Clear: c.clear.Load(), Unknown: c.unknown.Load(), Peer: c.peer.Load(), Astray: c.astray.Load(), Format: c.format.Load(),
		Replays: c.replays.Load(), Stale: c.stale.Load(), Forged: c.forged.Load(),
	}
}
