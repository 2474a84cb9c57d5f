package attack

import (
	"fmt"
	"math"
	"slices"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/verbs"
)

// byPeers are attacks by hosts that the victim has connections with.
func byPeers() []Attack { return slices.Concat(failing, flooding, readStorms()) }

// failing are attacks whose connections end in errors, or hear nothing.
var failing = []Attack{
	{
		Name: "read-wrong-key",
		What: "a peer sends 16 READs with a wrong rkey, then repeats them",
		Must: "one NAK and at most 8 repetitions, then silence; others go on",
		run:  readWrongKey,
	}, {
		Name:    "error-keeps-nothing",
		What:    "the victim's program posts 16 READs of 256 KiB with a wrong rkey on each of 4 queue pairs, which stay open",
		Must:    "a neighbour to the same host goes on as before",
		Goodput: 0.5,
		run:     errorKeepsNothing,
	}, {
		Name:    "silent-peer",
		What:    "32 queue pairs have WRITEs outstanding to a host that never acknowledges them",
		Must:    "a neighbour to the same host keeps a share",
		Goodput: 0.1,
		run:     silentPeer,
	}, {
		Name: "quiet-in-error",
		What: "a peer asks for 1 GiB, then sends a request that ends the connection",
		Must: "not more than two turns of packets after the queue pair is in ERR, with the NAK among them",
		run:  quietInError,
	}, {
		Name: "events",
		What: "a peer connects again and again and uses a wrong rkey; the program closes the queue pair and reads no events",
		Must: "less than 4 MiB of heap",
		run:  eventFlood,
	},
}

// flooding are attacks with more than the victim's program asked for.
var flooding = []Attack{
	{
		Name: "reorder",
		What: "a peer of our kind sends behind gaps on 32 connections, until nothing more is kept",
		Must: "less than 16 MiB of heap, and another connection can still keep a packet behind a gap",
		run:  reorderFlood,
	}, {
		Name: "rnr",
		What: "a peer sends messages for which no receive is posted",
		Must: "at most one answer for each, others go on",
		run:  func(t *Trial) { t.answered(rnrPacket) },
	}, {
		Name: "duplicates",
		What: "a peer repeats one SEND, one READ of 64 bytes and one FETCH_ADD",
		Must: "each is executed once, at most one answer for each packet",
		run:  duplicates,
	}, {
		Name: "full-cq",
		What: "a peer sends more messages than the receive completion queue holds; the program does not poll",
		Must: "the queue pair is in ERR and its peer is told by a NAK; others go on",
		run:  fullCQ,
	},
}

// readStorms are attacks with READs, one for each path MTU.
func readStorms() []Attack {
	var attacks []Attack
	for m := verbs.MTU256; m <= verbs.MTU4096; m++ {
		attacks = append(attacks, Attack{
			Name:    fmt.Sprintf("read-storm-%d", m.Bytes()),
			What:    fmt.Sprintf("a peer asks for 16 READs of 2 GiB at path MTU %d", m.Bytes()),
			Must:    "all other connections go on, with a share",
			Goodput: 0.1,
			run:     func(t *Trial) { readStorm(t, m) },
		})
	}
	return attacks
}

// huge returns n, or less where that is more address space than there is for
// several attacks at a time.
func huge(n uint64) uint64 {
	if math.MaxInt == math.MaxInt32 {
		return min(n, 128<<20)
	}
	return n
}

// readStorm has every turn begin with a storm of its own; closing the attacked
// queue pair ends it.
func readStorm(t *Trial, mtu verbs.MTU) {
	const reads = 16
	h := t.lab.hostile(true)
	size := huge(2 << 30)
	region := make([]byte, size) // zeros that nothing touches: it costs no memory
	mr, err := t.lab.victim.pd.RegisterMemory(region, verbs.RemoteRead)
	check(err)
	t.compare(t.lab.neighbour(), func() func() {
		f := t.lab.foe(h, endConfig{mtu: mtu})
		psns := int((size + uint64(mtu.Bytes()) - 1) / uint64(mtu.Bytes()))
		for i := range reads {
			check(f.send(f.packet(rocev2.RCReadRequest, i*psns, read(mr, uint32(size)))))
			t.result.Sent++
		}
		return func() {
			t.result.Answers += f.end.qp.Stats().TxPackets
			check(f.end.close())
		}
	})
	check(mr.Close())
}

func readWrongKey(t *Trial) {
	const reads, repeats = 16, 8
	h := t.lab.hostile(false)
	f := t.lab.foe(h, endConfig{})
	wrong := func(p *rocev2.Packet) {
		p.RETH = rocev2.RETH{VA: f.end.mr.Addr(), RKey: uint32(f.end.mr.RKey()) ^ 0x55, Length: 64 << 10}
	}
	var storm [][]byte
	for i := range reads {
		storm = append(storm, f.packet(rocev2.RCReadRequest, i*64, wrong))
	}
	for range max(t.Packets/reads, 2) {
		check(f.send(storm...))
		t.result.Sent += reads
	}
	t.lab.fence()
	t.must(f.end.qp.State() == verbs.StateErr, "a wrong rkey left the queue pair in state %v", f.end.qp.State())
	t.result.Answers = f.end.qp.Stats().TxPackets
	t.must(t.result.Answers >= 1 && t.result.Answers <= 1+repeats, "%d READs with a wrong rkey were answered with %d packets, not 1 to %d",
		t.result.Sent, t.result.Answers, 1+repeats)
	t.lab.await("NAK at the peer", func() bool { return h.got().fatal > 0 })
	t.compare(t.lab.neighbour(), func() func() {
		return flood(func(i int) { t.lab.forge(h.link.Addr(), rocev2.UDPPort, storm[i%reads]) })
	})
}

func errorKeepsNothing(t *Trial) {
	const conns, reads = 4, 16
	t.compare(t.lab.connect(t.lab.peer, t.lab.victim, endConfig{}), func() func() {
		var failed []*conn
		for range conns {
			c := t.lab.connect(t.lab.peer, t.lab.victim, endConfig{})
			var grow [2]pace // the windows, so that much is in flight
			check(c.turn(t.lab.ctx, t.Scale, &grow))
			failed = append(failed, c)
		}
		for _, c := range failed {
			if len(t.result.Broken) == 0 { // else it takes a minute each
				t.failReads(c, reads)
			}
		}
		return func() {
			for _, c := range failed {
				check(c.close())
			}
		}
	})
}

// failReads has the victim post READs with a wrong rkey.
func (t *Trial) failReads(c *conn, n int) {
	wrong := c.a.mr.RemoteAt(0)
	wrong.RKey ^= 0x55
	for range n {
		err := c.b.qp.PostSend(verbs.SendWR{Opcode: verbs.OpRead, SGList: []verbs.SGE{c.b.mr.Slice(0, 256<<10)}, Remote: wrong})
		check(err)
		t.result.Sent++
	}
	t.must(t.lab.happens(giveUpAfter, func() bool { return c.b.qp.State() == verbs.StateErr }),
		"READs on a queue pair beside failed ones are not answered in %v", giveUpAfter)
}

func silentPeer(t *Trial) {
	const silents, writes = 32, 2
	t.compare(t.lab.connect(t.lab.peer, t.lab.victim, endConfig{}), func() func() {
		var ends []*end
		for i := range silents {
			e := t.lab.end(t.lab.victim, endConfig{})
			c := endConfig{timeout: 22} // 17 s: the queue pair waits
			t.lab.join(e, verbs.Endpoint{Addr: t.lab.peer.addr, QPN: verbs.QPN(2 + i), PSN: 1, Native: true}, c)
			for range writes {
				check(e.qp.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{e.mr.All()}}))
				t.result.Sent++
			}
			ends = append(ends, e)
		}
		t.lab.fence()
		return func() {
			for _, e := range ends {
				check(e.close())
			}
		}
	})
}

func quietInError(t *Trial) {
	const turns = 2 * 64 // packets
	h := t.lab.hostile(false)
	f := t.lab.foe(h, endConfig{})
	size := huge(1 << 30)
	mr, err := t.lab.victim.pd.RegisterMemory(make([]byte, size), verbs.RemoteRead)
	check(err)
	check(f.send(f.packet(rocev2.RCReadRequest, 0, read(mr, uint32(size)))))
	t.lab.await("data of the READ", func() bool { return f.end.qp.Stats().TxPackets > 0 })
	bad := f.packet(rocev2.RCSendLast, int(size/uint64(f.end.mtu.Bytes())), payload(forged)) // no message is under way
	t.lab.await("end of the connection", func() bool {
		check(f.send(bad)) // the victim's socket buffer may be full
		t.result.Sent++
		return f.end.qp.State() == verbs.StateErr
	})
	before := f.end.qp.Stats().TxPackets
	t.must(t.lab.happens(giveUpAfter, func() bool { // sent by the goroutine that sends the data, when it runs
		s := f.end.qp.Stats() // an unfinished READ ends with a NAK of its own
		return s.NAKInvalidSent+s.NAKAccessSent+s.NAKOpSent > 0
	}), "no NAK")
	t.lab.fence()
	t.result.Answers = f.end.qp.Stats().TxPackets - before
	t.must(t.result.Answers <= turns, "%d packets after the queue pair was in ERR, more than %d", t.result.Answers, turns)
	t.healthy(t.lab.neighbour(), 20)
	check(mr.Close())
}

func eventFlood(t *Trial) {
	const limit = 4 << 20
	h := t.lab.hostile(true)
	scq, err := t.lab.victim.dev.CreateCQ(1024)
	check(err)
	reconnect := func() {
		qp, err := t.lab.victim.pd.CreateQP(verbs.QPConfig{SendCQ: scq, RecvCQ: scq})
		check(err)
		f := &foe{hostile: h, end: &end{host: t.lab.victim, qp: qp}, qpn: 77, psn: 1000}
		t.lab.join(f.end, verbs.Endpoint{Addr: h.link.Addr(), QPN: f.qpn, PSN: f.psn, Native: true}, endConfig{})
		wrong := f.packet(rocev2.RCWriteOnly, 0, func(p *rocev2.Packet) {
			p.RETH, p.Payload = rocev2.RETH{VA: 1, RKey: 1, Length: slotSize}, forged
		})
		t.lab.await("end of the connection", func() bool {
			check(f.send(wrong))
			return t.lab.happens(50*pollTime, func() bool { return qp.State() == verbs.StateErr })
		})
		check(qp.Close())
	}
	for range 8 { // what is taken once and kept
		reconnect()
	}
	before := heap()
	for range t.Conns {
		reconnect()
		t.result.Sent++
	}
	grown := heap() - before
	t.figure("heap growth", float64(grown), "bytes")
	t.must(grown < limit, "%d connections that ended in ERR and were closed hold %d bytes", t.Conns, grown)
	t.healthy(t.lab.neighbour(), 20)
}

func reorderFlood(t *Trial) {
	const conns, limit = 32, 16 << 20
	h := t.lab.hostile(true)
	honest := t.lab.foe(h, endConfig{})
	check(honest.end.postReceives())
	var foes []*foe
	for range conns {
		foes = append(foes, t.lab.foe(h, endConfig{mtu: verbs.MTU4096}))
	}
	full := make([]byte, verbs.MTU4096.Bytes())
	before := heap()
	for _, f := range foes {
		var gap [][]byte
		for i := range 1200 {
			gap = append(gap, f.packet(rocev2.RCSendMiddle, 1+i, payload(full)))
		}
		check(f.send(gap...))
		t.result.Sent += uint64(len(gap))
		t.lab.fence()
		t.result.Answers += f.end.qp.Stats().TxPackets
	}
	var kept, most uint64
	for _, f := range foes {
		n := f.end.qp.Stats().Reordered
		kept, most = kept+n, max(most, n)
	}
	grown := heap() - before
	t.figure("heap growth", float64(grown), "bytes")
	t.figure("kept", float64(kept), "packets")
	t.figure("kept by one connection", float64(most), "packets")
	t.must(grown < limit, "packets behind gaps hold %d bytes", grown)
	// A selective acknowledgement tells of eight packets that are kept, or
	// of another gap.
	most = nakPackets*conns + kept/8 + conns
	t.must(t.result.Answers <= most, "%d gaps, with %d packets kept, were answered with %d packets", conns, kept, t.result.Answers)
	check(honest.send(honest.packet(rocev2.RCSendOnly, 1, payload(forged))))
	t.lab.fence()
	t.must(honest.end.qp.Stats().Reordered == 1, "an innocent connection cannot keep a packet behind a gap any more")
	check(honest.send(honest.packet(rocev2.RCSendOnly, 0, payload(forged))))
	t.lab.fence()
	t.must(honest.end.expects() == honest.psn.Add(2), "a gap that was closed moved the innocent connection by %d packets, not 2",
		honest.end.expects().Sub(honest.psn))
	t.healthy(t.lab.neighbour(), 20)
}

func rnrPacket(f *foe, _ int) []byte { return f.packet(rocev2.RCSendOnly, 0, payload(forged)) }

// answered sends to a connection of its own and counts the answers, of which
// there may be one for each packet.
func (t *Trial) answered(packet func(f *foe, i int) []byte) *foe {
	f := t.lab.foe(t.lab.hostile(false), endConfig{})
	for i := range t.Packets {
		check(f.send(packet(f, i)))
		if t.result.Sent++; i%256 == 255 {
			t.lab.fence() // so that none is lost
		}
	}
	t.lab.fence()
	t.result.Answers = f.end.qp.Stats().TxPackets
	t.must(t.result.Answers > 0 && t.result.Answers <= t.result.Sent, "%d packets were answered with %d", t.result.Sent, t.result.Answers)
	t.must(f.end.qp.State() == verbs.StateRTS, "the queue pair is in state %v", f.end.qp.State())
	t.compare(t.lab.neighbour(), func() func() {
		return flood(func(i int) { t.lab.forge(f.link.Addr(), rocev2.UDPPort, packet(f, i)) })
	})
	return f
}

func duplicates(t *Trial) {
	const psns = 3
	f := t.answered(func(f *foe, i int) []byte {
		if i == 0 {
			check(f.end.postReceives())
		}
		switch i % psns {
		case 0:
			return f.packet(rocev2.RCSendOnly, 0, payload(forged))
		case 1:
			return f.packet(rocev2.RCReadRequest, 1, read(f.end.mr, slotSize))
		}
		return f.packet(rocev2.RCFetchAdd, 2, func(p *rocev2.Packet) {
			p.AtomicETH = rocev2.AtomicETH{VA: f.end.mr.Addr() + sendBase, RKey: uint32(f.end.mr.RKey()), SwapAdd: 1}
		})
	})
	n, err := f.end.mr.Load64(sendBase)
	check(err)
	s := f.end.qp.Stats()
	t.must(n == 1, "a FETCH_ADD that was repeated is executed %d times", n)
	t.must(s.RecvDone == 1, "a SEND that was repeated is executed %d times", s.RecvDone)
}

func fullCQ(t *Trial) {
	const entries = 4
	h := t.lab.hostile(false)
	f := t.lab.foe(h, endConfig{cqe: entries})
	check(f.end.postReceives())
	for i := range 4 * entries {
		check(f.send(f.packet(rocev2.RCSendOnly, i, payload(forged))))
		t.result.Sent++
		t.lab.fence()
		if f.end.qp.State() == verbs.StateErr {
			t.effect(t.result.Sent)
			break
		}
	}
	t.must(f.end.qp.State() == verbs.StateErr, "%d messages into a queue of %d completions left the queue pair in state %v",
		t.result.Sent, entries, f.end.qp.State())
	t.result.Answers = f.end.qp.Stats().TxPackets
	t.must(t.lab.happens(1000*pollTime, func() bool { return h.got().fatal > 0 }), "the peer is not told: no NAK")
	t.healthy(t.lab.neighbour(), 20)
}
