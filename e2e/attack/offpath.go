package attack

import (
	"encoding/binary"
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/verbs"
)

// offPath are attacks by those who see no traffic.
var offPath = []Attack{
	{
		Name: "garbage",
		What: "anybody sends datagrams of random bytes and lengths",
		Must: "no answer, no effect on connections",
		run:  func(t *Trial) { t.shoot(silent, garbage) },
	}, {
		Name: "scan",
		What: "anybody sends what port scanners send (nothing, HTTP, DNS, TLS), from thousands of ports",
		Must: "no answer, no effect on connections",
		run:  func(t *Trial) { t.shoot(silent, scan) },
	}, {
		Name: "wrong-qpn",
		What: "forged as the peer's, with a right ICRC, to queue pairs that do not exist",
		Must: "no answer, no effect on connections",
		run:  func(t *Trial) { t.shoot(silent, wrongQPN) },
	}, {
		Name: "wrong-address",
		What: "a third host sends requests and NAKs; QPN and PSN are right",
		Must: "no answer, no effect on connections",
		run: func(t *Trial) {
			t.shoot(silent, func(t *Trial, c *conn, i int) { knowing(t, c, i, t.lab.ghost, rocev2.UDPPort) })
		},
	}, {
		Name: "wrong-port",
		What: "a local process of the peer's host sends requests and NAKs from another port; QPN and PSN are right",
		Must: "no answer, no effect on connections between two of our kind",
		run: func(t *Trial) {
			t.shoot(silent, func(t *Trial, c *conn, i int) { knowing(t, c, i, t.lab.peer.addr, uint16(40000+i%20000)) })
		},
	}, {
		Name: "blind-request",
		What: "forged as the peer's, known QPN: requests with random PSNs, 256 or more away from the expected one",
		Must: "at most one answer for each, no effect on connections",
		run:  func(t *Trial) { t.shoot(1, blindRequest) },
	}, {
		Name: "blind-response",
		What: "forged as the peer's, known QPN: ACKs, NAKs, RNR NAKs, READ and atomic responses with random PSNs to an idle requester",
		Must: "no answer, no effect on connections",
		run:  func(t *Trial) { t.shoot(silent, blindResponse) },
	}, {
		Name: "blind-response-busy",
		What: "the same to a requester at work, whose own goodput is compared; PSNs 2^22 away from what is in flight",
		Must: "the connection survives",
		run:  blindResponseBusy,
	}, {
		Name: "cnp",
		What: "forged as the peer's, known QPN: congestion notifications; the attacked connection's own goodput is compared",
		Must: "no answer, the connection survives",
		run:  cnpFlood,
	}, {
		Name: "cnp-own-kind",
		What: "congestion notifications from port 4791 to a connection whose peer is of unknown kind",
		Must: "no more in flight than 128 packets: what nobody had to guess a number for does not make the peer one of our kind",
		run:  cnpNative,
	}, {
		Name: "inject-ahead",
		What: "forged as the peer's: one SEND, from 129 to 8000 PSNs ahead of the expected one; then the peer goes on",
		Must: "the program gets what its peer sent; at most 2 NAK packets for the forged one (one NAK, sent twice)",
		run:  injectAhead,
	}, {
		Name: "inject-two",
		What: "forged as the peer's: two SENDs with one PSN behind a gap and different content; then the peer goes on",
		Must: "the program gets what its peer sent; at most 2 NAK packets for each forged one",
		run:  injectTwo,
	},
}

const (
	silent    = 0       // answers allowed for each packet
	shootHeap = 6 << 20 // bytes of small objects: packets after gaps, and what connections take
	// buffersHeap is the bytes of receive buffers that the three devices
	// take once for each socket: 64 of 64 KiB each.
	buffersHeap = 3 * 64 << 16
)

// shoot sends packets to an idle connection, counts the answers, and compares
// the goodput of a neighbour.
func (t *Trial) shoot(answers int, shot func(t *Trial, c *conn, i int)) {
	c := t.lab.connect(t.lab.peer, t.lab.victim, endConfig{})
	if !t.healthy(c, 20) {
		return
	}
	t.lab.fence()
	small, all, before := smallHeap(), heap(), t.lab.victim.dev.Stats().Link.TxPackets
	for part := 1; t.result.Sent < uint64(t.Packets); part *= 2 { // small ones first, to see when an effect begins
		for range part {
			shot(t, c, int(t.result.Sent))
			t.result.Sent++
		}
		t.lab.fence()
		if s := c.b.qp.State(); s != verbs.StateRTS {
			t.effect(t.result.Sent)
			t.broken("the attacked connection is in state %v after %d packets or less", s, t.result.Sent)
			break
		}
	}
	t.result.Answers = t.lab.victim.dev.Stats().Link.TxPackets - before
	t.must(t.result.Answers <= uint64(answers)*t.result.Sent, "%d packets were answered with %d, more than %d each",
		t.result.Sent, t.result.Answers, answers)
	small, all = smallHeap()-small, heap()-all
	t.figure("heap growth", float64(all), "bytes")
	t.figure("heap growth of small objects", float64(small), "bytes")
	if !t.lab.net.virtual { // else others run beside this attack
		t.must(small < shootHeap, "%d packets hold %d bytes", t.result.Sent, small)
		t.must(all < shootHeap+buffersHeap*int64(max(1, t.lab.net.shards)), "%d packets hold %d bytes, receive buffers included", t.result.Sent, all)
	}
	if len(t.result.Broken) == 0 && !t.healthy(c, 20) {
		t.effect(t.result.Sent)
	}
	t.compare(t.lab.neighbour(), func() func() {
		return flood(func(i int) {
			shot(t, c, i)
			t.pace()
		})
	})
	if len(t.result.Broken) == 0 {
		t.healthy(c, 20)
	}
}

func garbage(t *Trial, _ *conn, i int) {
	b := make([]byte, t.random.IntN(1500))
	for k := range b {
		b[k] = byte(t.random.Uint32())
	}
	if len(b) > rocev2.BTHLen && i%2 == 0 {
		b[0], b[1] = byte(t.random.IntN(24)), 0 // an opcode of RC, and no version
		b = b[:len(b)&^3]
	}
	t.lab.datagram(netip.AddrPortFrom(t.random.addr(), uint16(t.random.Uint32())), b)
}

var probes = []string{
	"", "\x00", "GET / HTTP/1.0\r\n\r\n", "\r\n\r\n", "SSH-2.0-scan\r\n",
	"\x00\x1e\x00\x06\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07version\x04bind\x00\x00\x10\x00\x03", // DNS
	"\x16\x03\x01\x00\x75\x01\x00\x00\x71\x03\x03",                                                    // TLS
	"\x30\x26\x02\x01\x01\x04\x06public\xa0\x19",                                                      // SNMP
}

func scan(t *Trial, _ *conn, i int) {
	t.lab.datagram(netip.AddrPortFrom(t.random.addr(), uint16(i)), []byte(probes[i%len(probes)]))
}

// requests are what an attacker sends to a responder: a message, and what ends
// the connection where the PSN is right.
var requests = []rocev2.Opcode{
	rocev2.RCSendOnly, rocev2.RCSendLast, rocev2.RCWriteOnly, rocev2.RCReadRequest, rocev2.RCFetchAdd, rocev2.RCWriteMiddle,
}

// responses are what an attacker sends to a requester.
var responses = []struct {
	op       rocev2.Opcode
	syndrome rocev2.Syndrome
}{
	{rocev2.RCAcknowledge, rocev2.ACKNoCredits},
	{rocev2.RCAcknowledge, rocev2.NAKSequence},
	{rocev2.RCAcknowledge, rocev2.NAKRemoteAccess},
	{rocev2.RCAcknowledge, rocev2.SyndromeRNR(1)},
	{rocev2.RCReadResponseOnly, rocev2.ACKNoCredits},
	{rocev2.RCReadResponseMiddle, 0},
	{rocev2.RCAtomicAcknowledge, rocev2.ACKNoCredits},
}

func wrongQPN(t *Trial, c *conn, i int) {
	b := t.random.request(i, c.b, c.b.expects())
	qpn := uint32(c.b.qp.QPN()) ^ (1 + t.random.Uint32N(1<<24-1))
	if qpn < 0x10 {
		qpn = 0
	}
	binary.BigEndian.PutUint32(b[4:], qpn)
	t.lab.forge(t.lab.peer.addr, rocev2.UDPPort, b)
}

// knowing sends what has all numbers right but its source.
func knowing(t *Trial, c *conn, i int, src netip.Addr, port uint16) {
	if i%2 == 0 {
		t.lab.forge(src, port, t.random.request(i/2, c.b, c.b.expects()))
		return
	}
	t.lab.forge(src, port, response(i/2, c.b, c.b.nextPSN().Add(-1)))
}

// away is how far from the expected PSN blind guesses keep: nearer ones hit now
// and then, which Blind measures.
const away = 256

func blindRequest(t *Trial, c *conn, i int) {
	psn := c.b.expects().Add(away + t.random.IntN(1<<24-2*away))
	t.lab.forge(t.lab.peer.addr, rocev2.UDPPort, t.random.request(i, c.b, psn))
}

func blindResponse(t *Trial, c *conn, i int) {
	psn := c.b.nextPSN().Add(away + t.random.IntN(1<<24-2*away))
	t.lab.forge(t.lab.peer.addr, rocev2.UDPPort, response(i, c.b, psn))
}

func blindResponseBusy(t *Trial) {
	c := t.lab.connect(t.lab.peer, t.lab.victim, endConfig{})
	t.compare(c, func() func() {
		return flood(func(i int) {
			t.lab.forge(t.lab.peer.addr, rocev2.UDPPort, response(i, c.b, c.b.nextPSN().Add(1<<22+i%1024)))
		})
	})
	if len(t.result.Broken) == 0 {
		t.healthy(c, 20)
	}
}

func cnpFlood(t *Trial) {
	c := t.lab.connect(t.lab.peer, t.lab.victim, endConfig{})
	if !t.healthy(c, 20) {
		return
	}
	packet := notification(c.b.qp.QPN())
	t.lab.fence()
	before := t.lab.victim.dev.Stats().Link.TxPackets
	for range t.Packets {
		t.lab.forge(t.lab.peer.addr, rocev2.UDPPort, packet)
	}
	t.lab.fence()
	t.result.Sent = uint64(t.Packets)
	t.result.Answers = t.lab.victim.dev.Stats().Link.TxPackets - before
	t.must(t.result.Answers == 0, "%d notifications were answered with %d packets", t.Packets, t.result.Answers)
	t.compare(c, func() func() {
		return flood(func(int) { t.lab.forge(t.lab.peer.addr, rocev2.UDPPort, packet) })
	})
	if len(t.result.Broken) == 0 {
		t.healthy(c, 20)
	}
}

// foreignPackets is how many packets are in flight at most to a peer of unknown
// kind.
const foreignPackets = 128

// cnpNative looks at how much the victim has in flight to a peer that never
// answers: with and without notifications, and, so that the difference is seen
// to show, to one that the program says is of our kind.
func cnpNative(t *Trial) {
	h := t.lab.hostile(true)
	inFlight := func(cnps int, foreign bool) uint64 {
		f := t.lab.foe(h, endConfig{mtu: verbs.MTU256, foreign: foreign})
		for range cnps {
			check(f.send(notification(f.end.qp.QPN())))
		}
		t.lab.fence()
		check(f.end.qp.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{f.end.mr.All()}}))
		t.lab.fence()
		s := f.end.qp.Stats()
		check(f.end.close())
		return s.TxPackets - s.Retransmits
	}
	before := inFlight(0, true)
	t.must(before <= foreignPackets, "%d packets in flight to a peer of unknown kind, without any notification", before)
	own := inFlight(0, false)
	t.must(own > foreignPackets, "only %d packets in flight to a peer of our kind: the check shows nothing", own)
	const cnps = 16
	t.result.Sent = cnps
	after := inFlight(cnps, true)
	if after > foreignPackets {
		t.effect(1)
		t.broken("%d packets in flight to a peer of unknown kind after %d notifications", after, cnps)
	}
	t.figure("in flight before", float64(before), "packets")
	t.figure("in flight after", float64(after), "packets")
}

// nakPackets may answer one forged packet: a NAK, which one of our kind sends
// twice since nothing shows its loss.
const nakPackets = 2

func injectAhead(t *Trial) {
	distances := []int{129, 200, 1000}
	if t.Scale.Packets >= Long.Packets {
		distances = append(distances, 2000, 4000, 8000)
	}
	for _, d := range distances {
		naks, err := t.injected(d+16, func(c *conn) { t.forgeSend(c, d, forged) })
		if err != nil {
			t.effect(t.result.Sent)
			t.broken("%d ahead: %v", d, err)
		}
		t.must(naks <= nakPackets, "%d ahead: one forged packet was answered with %d NAKs", d, naks)
	}
}

func injectTwo(t *Trial) {
	other := append([]byte(nil), forged...)
	other[0] ^= 1
	for _, d := range []int{1, 2, 50} {
		naks, err := t.injected(d+16, func(c *conn) {
			t.forgeSend(c, d, forged)
			t.forgeSend(c, d, other)
		})
		if err != nil {
			t.effect(t.result.Sent)
			t.broken("%d ahead: %v", d, err)
		}
		t.must(naks <= 2*nakPackets, "%d ahead: two forged packets were answered with %d NAKs", d, naks)
	}
}

// forgeSend forges a message d PSNs ahead of what the victim expects.
func (t *Trial) forgeSend(c *conn, d int, b []byte) {
	t.result.Sent++
	t.lab.forge(t.lab.peer.addr, rocev2.UDPPort, encode(rocev2.RCSendOnly, c.b.qp.QPN(), c.b.expects().Add(d), payload(b)))
}

// injected has a connection of its own attacked, then the peer sends n
// messages. It returns the NAKs that the victim has sent and what was wrong.
func (t *Trial) injected(n int, attack func(*conn)) (naks uint64, err error) {
	c := t.lab.connect(t.lab.peer, t.lab.victim, endConfig{})
	check(t.lab.stream(c.a, c.b, 2))
	check(c.b.postReceives())
	before := c.b.qp.Stats().NAKSeqSent
	attack(c)
	t.lab.fence()
	err = t.lab.stream(c.a, c.b, n)
	naks = c.b.qp.Stats().NAKSeqSent - before
	t.result.Answers += naks
	check(c.close())
	return naks, err
}
