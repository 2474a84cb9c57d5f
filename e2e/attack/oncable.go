package attack

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// cableAttacks are attacks by one that has the cable of the victim: it has
// every packet of what is secured, and sends what it likes in the name of the
// peer.
var cableAttacks = []Attack{
	{
		Name: "clear", Goodput: unharmed,
		What: "forged as the peer's, in clear: requests, acknowledgements and NAKs with the right numbers and PSNs",
		Must: "no answer, no effect on the connection",
		run:  onCable((*cable).inClear),
	}, {
		Name: "replay", Goodput: unharmed,
		What: "every sealed packet that came to the victim is sent again: forwards, backwards, in any order, and beside the traffic",
		Must: "no answer, nothing is executed twice, the connection goes on",
		run:  onCable(func(a *cable) { a.forge((*cable).replayed) }),
	}, {
		Name: "bits", Goodput: unharmed,
		What: "every sealed packet that came to the victim is sent again with a bit changed, each bit of it in turn",
		Must: "no answer, no effect on the connection",
		run:  onCable(func(a *cable) { a.forge((*cable).flipped) }),
	}, {
		Name: "later", Goodput: unharmed,
		What: "every sealed packet that came to the victim is sent again with an IV that has not come: to a secured device as one of a later lease, for which it derives keys",
		Must: "no answer, no effect on the connection",
		run:  onCable(func(a *cable) { a.forge((*cable).later) }),
	}, {
		Name: "splice", Goodput: unharmed,
		What: "packets made of recorded ones: another IV, SPI or version, of another lease, socket, host or key; the head of one and the body of another; cut, and longer; those that the victim has sent itself; those of others",
		Must: "no answer, no effect on any connection",
		run: onCable(func(a *cable) {
			a.forge((*cable).spliced)
			a.named("guard_unknown_spi", "guard_wrong_peer", "guard_astray", "guard_malformed", "guard_forged")
		}),
	}, {
		Name: "elsewhere",
		What: "every sealed packet that came to the victim is sent from another address, before the victim has it",
		Must: "no answer, no effect on the connection",
		run:  onCable((*cable).elsewhere),
	}, {
		Name: "drop",
		What: "one packet in seven is dropped, both ways, and once 4 in a row: what encryption cannot prevent",
		Must: "all messages arrive, in order and whole",
		run:  onCable((*cable).dropped),
	}, {
		Name: "delay",
		What: "one packet in five is held back, and let through after the 40 that follow it: what encryption cannot prevent",
		Must: "all messages arrive, in order and whole",
		run:  onCable((*cable).delayed),
	}, {
		Name: "cut",
		What: "no sealed packet passes any more: what encryption cannot prevent",
		Must: "the connection ends with an error, and no false data",
		run:  onCable((*cable).cut),
	},
}

// inClear has packets come that a connection in clear would take.
func (a *cable) inClear() {
	a.t.shoot(silent, func(t *Trial, c *conn, i int) { knowing(t, c, i, t.lab.peer.addr, rocev2.UDPPort) })
	a.t.refusedClear(a.t.result.Sent)
}

// refusedClear looks at whether packets in clear have come, and how many at
// least were refused.
func (t *Trial) refusedClear(least uint64) {
	n := t.lab.refusedClear(t.lab.victim)
	t.figure("refused in clear", float64(n), "packets")
	t.must(t.lab.inject == nil || n >= least, "only %d of %d packets were refused for they were in clear: the check shows nothing", n, t.result.Sent)
}

// cable is an attacker that has the cable of the victim, and what it has of a
// connection.
type cable struct {
	t       *Trial
	c       *conn
	in, out [][]byte // sealed packets to the victim, and from it
	other   [][]byte // of another connection, of another host if it is hosts that have keys
}

// unharmed is the share of a neighbour beside a flood of forged packets: each
// costs a look, and has no answer.
const unharmed = 0.95

// atOnce is how many packets are sent between two looks at the victim.
const atOnce = 200

// onCable returns an attack of one that has the cable.
func onCable(run func(*cable)) func(*Trial) {
	return func(t *Trial) { run(&cable{t: t}) }
}

// forge makes a connection, records what goes over it, and sends the packets
// that shot makes of that.
func (a *cable) forge(shot func(a *cable, i int) (src netip.Addr, data []byte)) {
	t := a.t
	from := t.lab.peer
	if t.lab.guarded != nil {
		from = t.lab.other
	}
	a.c = t.lab.connect(t.lab.peer, t.lab.victim, endConfig{})
	second := t.lab.connect(from, t.lab.victim, endConfig{})
	if !t.healthy(a.c, 40) || !a.adds(3) {
		return
	}
	t.lab.fence()
	a.in, a.out = t.lab.take(t.lab.victim), t.lab.take(t.lab.peer)
	if !t.healthy(second, 10) {
		return
	}
	t.lab.fence()
	a.other = t.lab.take(t.lab.victim)
	t.must(len(a.in) > 40 && len(a.out) > 40 && len(a.other) > 10, "the attacker has %d, %d and %d packets: the check shows nothing", len(a.in), len(a.out), len(a.other))
	send := func(i int) {
		if src, b := shot(a, i); b != nil {
			t.lab.datagram(netip.AddrPortFrom(src, rocev2.UDPPort), b)
		}
	}
	if !a.count(send) {
		return
	}
	t.compare(t.lab.neighbour(), func() func() {
		return flood(func(i int) {
			send(i)
			t.pace()
		})
	})
	if t.healthy(a.c, 20) && t.healthy(second, 20) {
		a.adds(3)
	}
}

// count sends packets, and looks at what the victim does with them.
func (a *cable) count(send func(i int)) bool {
	t := a.t
	before, seals, all := t.lab.victim.dev.Stats().Link.TxPackets, t.lab.refused(t.lab.victim), t.lab.refusedAtAll(t.lab.victim)
	for int(t.result.Sent) < t.Packets {
		for range atOnce {
			send(int(t.result.Sent))
			t.result.Sent++
		}
		t.lab.fence()
		if s := a.c.b.qp.State(); s != verbs.StateRTS {
			t.effect(t.result.Sent)
			t.broken("the attacked connection is in state %v after %d packets or less", s, t.result.Sent)
			return false
		}
	}
	t.result.Answers = t.lab.victim.dev.Stats().Link.TxPackets - before
	t.must(t.result.Answers == 0, "%d packets were answered with %d", t.result.Sent, t.result.Answers)
	seals = t.lab.refused(t.lab.victim) - seals
	t.figure("refused by their seal", float64(seals), "packets")
	if t.lab.inject != nil { // else the socket may have lost some
		all = t.lab.refusedAtAll(t.lab.victim) - all
		t.must(t.lab.guarded == nil || all == t.result.Sent, "%d packets were sent, and %d are counted as refused", t.result.Sent, all)
		t.must(seals > t.result.Sent/2, "only %d of %d packets were refused by their seal: the check shows nothing", seals, t.result.Sent)
	}
	return true
}

// named looks at the counters of a secured device: each of those has to count
// refused packets.
func (a *cable) named(names ...string) {
	t := a.t
	if t.lab.guarded == nil {
		return
	}
	c, _ := t.lab.victim.dev.GuardCounters()
	c.Each(func(name string, v uint64) {
		if !slices.Contains(names, name) {
			return
		}
		t.figure(name, float64(v), "packets")
		t.must(v > 0, "%s counts nothing: the check shows nothing", name)
	})
}

// adds has the peer add to a counter of the victim's, and checks that each adds
// once.
func (a *cable) adds(n int) bool {
	t, c := a.t, a.c
	const at = sendBase + streamDepth*slotSize
	was, err := c.b.mr.Load64(at)
	check(err)
	for range n {
		check(c.a.qp.PostSend(verbs.SendWR{Opcode: verbs.OpFetchAdd, Signaled: true, CompareAdd: 1,
			SGList: []verbs.SGE{c.a.mr.Slice(at, 8)}, Remote: c.b.mr.RemoteAt(at)}))
		if wc, err := t.lab.wait(c.a.scq); err != nil || wc.Status != verbs.StatusSuccess {
			t.broken("FETCH_ADD: %v %v", wc.Status, err)
			return false
		}
	}
	is, err := c.b.mr.Load64(at)
	check(err)
	t.must(is == was+uint64(n), "%d FETCH_ADDs have added %d", n, is-was)
	return true
}

// copyOf returns one that may be changed: what is opened is opened in place.
func copyOf(b []byte) []byte { return append([]byte(nil), b...) }

func (a *cable) replayed(i int) (netip.Addr, []byte) {
	n := len(a.in)
	k := a.t.random.IntN(n)
	switch i / n % 3 {
	case 0:
		k = i % n
	case 1:
		k = n - 1 - i%n
	}
	return a.t.lab.peer.addr, copyOf(a.in[k])
}

func (a *cable) flipped(i int) (netip.Addr, []byte) {
	b := copyOf(a.in[i%len(a.in)])
	bit := (i/len(a.in)*131 + i) % (8 * len(b))
	b[bit/8] ^= 1 << (bit % 8)
	return a.t.lab.peer.addr, b
}

// later makes a packet of a lease that there is not: its serial number is the
// high half of the IV.
func (a *cable) later(i int) (netip.Addr, []byte) {
	b := copyOf(a.in[i%len(a.in)])
	binary.BigEndian.PutUint32(b[atIV:], uint32(1+i))
	return a.t.lab.peer.addr, b
}

// offsets in a sealed packet.
const (
	atVersion, atSPI, atIV = 3, 4, 8
	atBody                 = 16 + 8 // after the PSP header and a UDP header in clear

	// In the SPI of a secured device: see package transport/guard.
	atSender, atReceiver = atSPI + 2, atSPI + 3
)

// spliced makes a packet of recorded ones, which is one that has not come.
func (a *cable) spliced(i int) (src netip.Addr, b []byte) {
	pick := func(of [][]byte) []byte { return copyOf(of[a.t.random.IntN(len(of))]) }
	b, src = pick(a.in), a.t.lab.peer.addr
	other := byte(1 + a.t.random.IntN(255))
	const kinds = 13
	switch i % kinds {
	case 0: // the head of one, the body of another
		b = append(b[:atBody], pick(a.in)[atBody:]...)
	case 1: // what the victim has sent itself, to the peer
		b = pick(a.out)
	case 2: // the same, as if it came from the victim
		b, src = pick(a.out), a.t.lab.victim.addr
	case 3: // the same, with an SPI of what comes to the victim
		b = pick(a.out)
		copy(b[atSPI:atIV], a.in[0][atSPI:])
	case 4: // of another connection or host
		b = pick(a.other)
	case 5: // the same, with an SPI of what comes from the peer
		b = pick(a.other)
		copy(b[atSPI:atIV], a.in[0][atSPI:])
	case 6: // another version: authenticated alone, the other length of keys, none
		b[atVersion] ^= byte(1+a.t.random.IntN(15)) << 2
	case 7: // another key
		b[atSPI+a.t.random.IntN(2)] ^= other
	case 8: // of another socket
		b[atSender] ^= other
	case 9: // for another socket
		b[atReceiver] ^= other
	case 10: // longer
		b = append(b, b[:4*(1+a.t.random.IntN(8))]...)
	case 11: // cut; if it is very short it may be no sealed packet at all
		b = b[:transport.SealedOverhead+a.t.random.IntN(len(b)-transport.SealedOverhead)]
	}
	iv := uint64(1_000_000 + i) // of the same lease
	if i%kinds == 12 {
		iv |= uint64(a.t.random.Uint32()) << 32
	}
	binary.BigEndian.PutUint64(b[atIV:], iv)
	return src, b
}

// elsewhere has the packets come from another address first.
func (a *cable) elsewhere() {
	t := a.t
	c := t.lab.connect(t.lab.peer, t.lab.victim, endConfig{})
	if !t.healthy(c, 20) {
		return
	}
	t.lab.take(t.lab.victim)
	src := netip.AddrPortFrom(t.lab.ghost, rocev2.UDPPort)
	sent := make(chan uint64)
	held := make(chan []byte, mostTaken)
	go func() {
		n := uint64(0)
		for b := range held {
			t.lab.datagram(src, b)
			n++
		}
		sent <- n
	}()
	before := t.lab.wrongPeer(t.lab.victim)
	t.lab.passes(t.lab.victim, func(n int, data []byte) bool {
		if n%3 != 0 { // its copy comes from elsewhere, and the peer sends it again
			return true
		}
		select {
		case held <- copyOf(data):
		default:
		}
		return n%2 == 0
	})
	t.healthy(c, 200)
	t.lab.passes(t.lab.victim, nil)
	close(held)
	t.result.Sent = <-sent
	t.lab.fence()
	t.must(t.lab.inject == nil || t.lab.wrongPeer(t.lab.victim) > before, "of %d packets none was refused for its source: the check shows nothing", t.result.Sent)
	t.healthy(c, 20)
}

func (a *cable) dropped() {
	t := a.t
	c := t.lab.connect(t.lab.peer, t.lab.victim, endConfig{})
	a.c = c
	pass := func(n int, _ []byte) bool { return n%7 != 0 && (n < 100 || n >= 104) }
	t.lab.passes(t.lab.victim, pass)
	t.lab.passes(t.lab.peer, pass)
	t.healthy(c, 300)
	t.figure("sent again", float64(c.a.qp.Stats().Retransmits+c.b.qp.Stats().Retransmits), "packets")
	t.must(c.a.qp.Stats().Retransmits > 0, "nothing was sent again: the check shows nothing")
	a.adds(20)
}

func (a *cable) delayed() {
	t := a.t
	const later = 40
	c := t.lab.connect(t.lab.peer, t.lab.victim, endConfig{})
	a.c = c
	type late struct {
		due  int
		data []byte
	}
	var queue []late
	let := make(chan []byte, mostTaken)
	ended := make(chan struct{})
	src := netip.AddrPortFrom(t.lab.peer.addr, rocev2.UDPPort)
	go func() {
		defer close(ended)
		for b := range let {
			t.lab.datagram(src, b)
		}
	}()
	own := map[string]bool{} // those that come back pass
	t.lab.passes(t.lab.victim, func(n int, data []byte) bool {
		for len(queue) > 0 && queue[0].due <= n {
			let <- queue[0].data
			queue = queue[1:]
		}
		if n%5 != 0 || own[string(data[atSPI:16])] || len(own) >= mostTaken/2 {
			return true
		}
		own[string(data[atSPI:16])] = true
		queue = append(queue, late{n + later, copyOf(data)})
		return false
	})
	t.healthy(c, 300)
	t.lab.passes(t.lab.victim, nil)
	t.result.Sent = uint64(len(own))
	close(let)
	<-ended
	t.lab.fence()
	a.adds(20)
}

func (a *cable) cut() {
	t := a.t
	c := t.lab.connect(t.lab.peer, t.lab.victim, endConfig{timeout: 8})
	if !t.healthy(c, 20) {
		return
	}
	t.lab.passes(t.lab.victim, func(int, []byte) bool { return false })
	check(c.a.qp.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Signaled: true, SGList: []verbs.SGE{c.a.mr.Slice(0, slotSize)}, Remote: c.b.mr.RemoteAt(sendBase)}))
	wc, err := t.lab.wait(c.a.scq)
	check(err)
	t.must(wc.Status == verbs.StatusRetryExcErr, "a WRITE that nothing answers ends with %v", wc.Status)
	t.must(c.a.qp.State() == verbs.StateErr, "the queue pair is in state %v", c.a.qp.State())
	t.lab.passes(t.lab.victim, nil)
	t.healthy(t.lab.neighbour(), 20)
}
