//go:build !portable

package leases

import (
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport/lease"
)

// burst is how many packets leave at once. Sender and owner share the
// processors: a pause after each lets the honest have some of the receive
// buffer.
const (
	burst = 64
	rest  = time.Millisecond
)

var (
	owner   = netip.MustParseAddr(victimAddr)
	strange = netip.MustParseAddr(strangeAddr)
)

// flood forges packets, BTH to pad, as from a source.
func (t *trial) flood(from func() netip.Addr, packet func() []byte) {
	for n := 0; t.more(n, t.Packets); n += burst {
		for range burst {
			t.forge(from(), packet())
		}
		time.Sleep(rest)
	}
}

func (t *trial) forge(from netip.Addr, b []byte) {
	port := uint16(0xc000 + t.rng.UintN(0x3fff))
	flow := rocev2.NewFlow(from, owner, port, rocev2.UDPPort)
	t.check(t.wire.Send(netip.AddrPortFrom(from, port), netip.AddrPortFrom(owner, rocev2.UDPPort), flow.Seal(0, b)))
	t.result.Sent++
}

func always(a netip.Addr) func() netip.Addr { return func() netip.Addr { return a } }

// toSlots floods slots. What count counts has arrived there.
func (t *trial) toSlots(slots []int, count func() uint64) {
	before := count()
	t.flood(t.anyone, func() []byte {
		return t.send(rocev2.QPN(t.rng.Uint32N(1<<16)<<8) | rocev2.QPN(slots[t.rng.IntN(len(slots))]))
	})
	t.must(t.happens(func() bool { return count()-before >= t.result.Sent/2 }), "of %d packets %d have arrived: the attack is an empty one",
		t.result.Sent, count()-before)
}

// idle floods slots that no process has leased. Nothing reads there: the
// kernel drops what comes.
func (t *trial) idle() {
	slots, err := t.owner.freeSlots()
	t.check(err)
	t.toSlots(slots, func() uint64 {
		n, err := kernelDrops()
		t.check(err)
		return n
	})
}

// leased floods queue pairs that there are not.
func (t *trial) leased() {
	slots, err := t.owner.slotsOfHonest()
	t.check(err)
	t.toSlots(slots, func() uint64 { return t.honest.drops("unknown_qpn") })
}

// envelopes floods every slot with envelopes.
func (t *trial) envelopes() {
	t.flood(t.anyone, t.envelope)
	t.must(t.happens(func() bool { return t.honest.drops("unknown_opcode") > 0 }), "nothing has arrived: the attack is an empty one")
}

// post sends a packet, BTH to pad, by a leased socket: it comes from the own
// address.
func (t *trial) post(h *tenant, b []byte) {
	flow := rocev2.NewFlow(owner, owner, rocev2.UDPPort, rocev2.UDPPort)
	err := unix.Sendto(h.fd, flow.Seal(0, b), unix.MSG_DONTWAIT, &unix.SockaddrInet4{Port: rocev2.UDPPort, Addr: owner.As4()})
	if err != unix.EAGAIN && err != unix.ENOBUFS {
		t.check(err)
	}
	t.result.Sent++
}

// envelopeOf is one of a lease.
func (h *tenant) envelope(addr netip.Addr, inner []byte) []byte {
	e := lease.Envelope{To: 1, Token: h.grant.Token, Addr: addr, Port: rocev2.UDPPort, HopLimit: 64}
	b := make([]byte, rocev2.MaxPacketLen)
	return b[:e.Put(b, inner)]
}

// kernelDrops is how many packets the sockets of this network namespace have
// dropped, those of idle slots too.
func kernelDrops() (sum uint64, err error) {
	b, err := os.ReadFile("/proc/net/udp")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if n, err := strconv.ParseUint(f[len(f)-1], 10, 64); err == nil {
			sum += n
		}
	}
	return sum, nil
}
