//go:build !portable

package leases

import (
	"errors"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/gosoftroce/rocev2/e2e/attack/victim"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport/lease"
)

// tenants takes n leases.
func (t *trial) tenants(n int) (list []*tenant, leave func()) {
	for range n {
		h, err := t.enter()
		t.check(err)
		list = append(list, h)
	}
	return list, func() {
		for _, h := range list {
			h.leave()
		}
	}
}

// ownEnvelopes sends envelopes from the own address: with guessed tokens by a
// leased socket, as a process with a copy of one can, and by forging the
// address.
func (t *trial) ownEnvelopes() {
	list, leave := t.tenants(1)
	defer leave()
	n := 0
	t.flood(always(owner), func() []byte {
		n++
		if n%2 == 0 {
			t.post(list[0], t.envelope())
		}
		return t.envelope()
	})
}

// floods has a leaseholder send more management datagrams than it may, to the
// network and to the others, and hand over packets that it claims to have
// received for others.
func (t *trial) floods() {
	list, leave := t.tenants(2)
	defer leave()
	for n := 0; t.more(n, t.Packets); n += burst {
		h := list[n/burst%len(list)]
		for i := range burst {
			switch to := strange; i % 4 {
			case 0:
				t.post(h, h.envelope(owner, t.mad()))
			case 1:
				t.post(h, h.envelope(to, t.mad()))
			default:
				t.post(h, h.envelope(to, t.send(rocev2.QPN(t.rng.Uint32N(1<<24)))))
			}
		}
		time.Sleep(rest)
	}
}

// falseCounts are counters that a process may tell, and that are not true.
func falseCounts() []lease.Counts {
	most := uint64(math.MaxUint64)
	list := []lease.Counts{{QPs: 1 << 24, MadeQPs: most, TxBytes: most, RxBytes: most, TxPackets: most, RxPackets: most, TxShm: most, RxShm: most}, {}}
	for range 20 {
		list[1].Peers = append(list[1].Peers, lease.Peer{Addr: strange, Native: true})
	}
	return list
}

// impossible are counters that end the lease.
func impossible() []lease.Counts {
	return []lease.Counts{{QPs: -7}, {QPs: math.MaxInt}, {Peers: []lease.Peer{{Addr: netip.MustParseAddr("fe80::1%a\x1b[2J")}}}}
}

// falseCounters tells counters that are not true, and such that cannot be.
func (t *trial) falseCounters() {
	for _, c := range impossible() {
		h, err := t.enter()
		t.check(err)
		t.check(h.say(&lease.Message{Tell: &c}))
		t.check(h.conn.SetReadDeadline(time.Now().Add(giveUpAfter)))
		_, err = io.Copy(io.Discard, h.conn)
		t.must(!errors.Is(err, os.ErrDeadlineExceeded), "a leaseholder that tells %+v keeps its lease", c)
		h.leave()
	}
	list, leave := t.tenants(1)
	defer leave()
	all := falseCounts()
	// Each of these waits for its turn once the leaseholder has said too
	// much: it alone.
	for n := 0; t.more(n, t.Clients); n++ {
		if err := list[0].say(&lease.Message{Tell: &all[n%len(all)]}); err != nil {
			t.must(false, "after %d lies: %v", n, err)
			return
		}
		t.result.Sent++
		if n%50 == 0 {
			t.checkAnswers()
		}
	}
}

// checkAnswers looks at what the daemon tells of its leases.
func (t *trial) checkAnswers() {
	all, err := t.owner.leases()
	t.must(err == nil, "the daemon does not tell its leases: %v", err)
	for _, l := range all {
		t.must(l.QueuePairs >= 0, "a lease of %d queue pairs", l.QueuePairs)
	}
	_, err = t.daemon.Get(victim.AdminPort, "/metrics")
	t.must(err == nil, "the daemon tells no metrics: %v", err)
}

// reserves has leaseholders want every service, again and again, and take no
// answer.
func (t *trial) reserves() {
	list, leave := t.tenants(2)
	defer leave()
	refused := 0
	for n := 0; t.more(n, t.Packets/10); n++ {
		m := lease.Message{Reserve: &lease.Service{ID: t.rng.Uint64(), Mask: math.MaxUint64 << (n % 3)}}
		if n%5 == 0 {
			m = lease.Message{Release: &lease.Service{ID: t.rng.Uint64(), Mask: math.MaxUint64}}
		}
		h := list[n%len(list)]
		t.check(h.conn.SetWriteDeadline(time.Now().Add(rest)))
		switch err := h.say(&m); {
		case err == nil:
			t.result.Sent++
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, net.ErrClosed):
			refused++ // it has to wait: others do not
		default: // it has lost its lease, since it takes no answers
			h.leave()
			again, err := t.enter()
			if err != nil {
				t.must(false, "a new lease: %v", err)
				return
			}
			list[n%len(list)] = again
		}
	}
	t.figure("had to wait", float64(refused), "times")
}
