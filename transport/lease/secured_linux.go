//go:build !portable

package lease

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/guard"
)

// mostWants is how many peers without keys may wait to be told of.
const mostWants = 16

// secure has a link of the lease seal its packets with the keys of a table;
// nil: the port is not secured. The owner seals those of connection managers.
func (l *Lease) secure(link *Link, shard int, table *guard.Table) transport.Link {
	if table == nil {
		return link
	}
	if l.wants == nil {
		l.wants = make(chan Want, mostWants)
		go l.tellWants()
	}
	return guard.New(link, guard.Config{Table: table, Slot: uint8(l.grant.Slot + shard), Serial: l.grant.Serial, Through: isManagement,
		Want: func(peer netip.Addr, why guard.Reason) {
			select {
			case l.wants <- Want{peer, why}:
			default: // it is asked again
			}
		}})
}

// guarded returns what the links have sealed, opened and dropped, nil where the
// port is not secured.
func (l *Lease) guarded() (sum *guard.Counters) {
	for _, link := range l.links {
		g, ok := link.(*guard.Link)
		if !ok {
			return nil
		}
		if sum == nil {
			sum = new(guard.Counters)
		}
		c := g.Counters()
		sum.Add(&c)
	}
	return sum
}

// tellWants tells the owner of which peers keys are wanted. To write may take
// time, which those that send and receive do not have.
func (l *Lease) tellWants() {
	for {
		select {
		case w := <-l.wants:
			_ = l.write(&Message{Want: &w}) // or the lease ends
		case <-l.over:
			return
		}
	}
}
