package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// arriving begins a message of n packets between a and b, whose first PSN is
// one more than psn. It returns the host that receives its data, and the
// packets.
func arriving(t *testing.T, op ib.Opcode, psn rocev2.PSN, n uint32) (*host, []transport.RxPacket) {
	w := newWorld(t, 3)
	a, b := w.newPair(Config{Window: boundless})
	a.psn, b.psn = psn, psn
	qa, qb := connectPair(a, b, true)
	_, err := b.e.PostRecv(qb, []ib.RecvWR{{SGList: []ib.SGE{b.mr.SGE(0, n<<10)}}})
	w.must(err)
	a.write(qa, b, 1) // a has heard of b
	a.waitOK(1)
	from, to := a, b
	if op == ib.OpRead {
		from, to = b, a
	}
	from.held = true
	a.post(qa, op, b, n<<10)
	w.sleep(w.delay + 1)
	w.tx.Reset()
	from.e.Fill(w.now, w.tx, AllClasses)
	w.send(from)
	for i := range w.events {
		if e := &w.events[i]; len(e.packets) == int(n) {
			return to, e.packets
		}
	}
	t.Fatalf("no batch of %d packets is on the way", n)
	return nil, nil
}

// What is taken as a run are the packets between the first and the last of a
// message, to the first that is not like the one before it.
func TestWhatIsARun(t *testing.T) {
	t.Parallel()
	head := func(i int, bit byte) func(p *transport.RxPacket) {
		return func(p *transport.RxPacket) { p.Data[i] ^= bit }
	}
	odd := map[string]func(p *transport.RxPacket){
		"nothing":             func(*transport.RxPacket) {},
		"a wrong ICRC":        func(p *transport.RxPacket) { p.ICRC = transport.ICRCBad },
		"a mark":              func(p *transport.RxPacket) { p.TrafficClass |= 3 },
		"another port":        func(p *transport.RxPacket) { p.SrcPort++ },
		"another source":      func(p *transport.RxPacket) { p.Src = addrOf(77) },
		"a group":             func(p *transport.RxPacket) { p.Dst = netip.AddrFrom4([4]byte{224, 0, 0, 1}) },
		"another length":      func(p *transport.RxPacket) { p.Data = p.Data[:len(p.Data)-4] },
		"another opcode":      head(0, 2),
		"a pad":               head(1, 0x10),
		"a version":           head(1, 1),
		"another partition":   head(3, 1),
		"another queue pair":  head(7, 1),
		"AckReq":              head(8, 0x80),
		"another PSN":         head(11, 0x20),
		"only its own length": func(p *transport.RxPacket) { p.Data = p.Data[:rocev2.BTHLen+rocev2.ICRCLen] },
	}
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpSend, ib.OpRead} {
		for name, change := range odd {
			for _, all := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v,%s,%v", op, name, all), func(t *testing.T) {
					t.Parallel()
					to, packets := arriving(t, op, 0, 10)
					to.e.Receive(to.w.now, packets[:1])
					packets = packets[1:]
					want := 8
					for i := range packets {
						if i == 2 || all {
							packets[i].Data = bytes.Clone(packets[i].Data)
							change(&packets[i])
						}
					}
					if name != "nothing" {
						want = 2
						if all {
							want = 0
						}
					}
					if done := to.run(t, packets); done != want {
						t.Errorf("%d packets as a run, want %d", done, want)
					}
				})
			}
		}
	}
}

// run returns how many packets are taken as a run.
func (h *host) run(t *testing.T, packets []transport.RxPacket) int {
	if !inMiddle(packets[0].Data) {
		return 0
	}
	done, alone := h.e.in.takeRun(h.w.now, new(Ready), packets)
	if (done == 0) != (alone > 0) {
		t.Errorf("%d packets as a run, and %d alone", done, alone)
	}
	return done
}

// Packets that say that they are in the middle of a message are no run if none
// is under way, or another one.
func TestMiddleOfNothing(t *testing.T) {
	t.Parallel()
	ops := map[ib.Opcode]rocev2.Opcode{ib.OpSend: rocev2.RCSendMiddle, ib.OpWrite: rocev2.RCWriteMiddle, ib.OpRead: rocev2.RCReadResponseMiddle}
	for op := range ops {
		for _, middle := range ops {
			for begun := range 2 {
				to, packets := arriving(t, op, 0, 10)
				to.e.Receive(to.w.now, packets[:begun])
				var forged []transport.RxPacket
				psn := rocev2.PSN(binary.BigEndian.Uint32(packets[begun].Data[8:])) & rocev2.PSNMask
				for i := range 5 {
					p := packets[begun+i]
					p.Data = make([]byte, rocev2.BTHLen+1024+rocev2.ICRCLen)
					copy(p.Data, packets[begun].Data[:rocev2.BTHLen])
					p.Data[0] = byte(middle)
					binary.BigEndian.PutUint32(p.Data[8:], uint32(psn.Add(i)))
					forged = append(forged, p)
				}
				want := 0
				if middle == ops[op] && begun == 1 {
					want = 5
				}
				if done := to.run(t, forged); done != want {
					t.Errorf("%v: %d of %v are a run, want %d", op, done, middle, want)
				}
			}
		}
	}
}

// Where the responder must look after what it keeps by PSN there is no run.
func TestNoRunAcrossAges(t *testing.T) {
	t.Parallel()
	for _, op := range []ib.Opcode{ib.OpSend, ib.OpWrite} {
		to, packets := arriving(t, op, 1<<20-5, 10)
		to.e.Receive(to.w.now, packets[:1])
		if done := to.run(t, packets[1:]); done != 0 {
			t.Errorf("%v: a run of %d", op, done)
		}
		to.e.Receive(to.w.now, packets[1:6])
		if done := to.run(t, packets[6:]); done != 3 {
			t.Errorf("%v: a run of %d after it, want 3", op, done)
		}
	}
}

// Responses are no run if nothing is outstanding, whatever was before.
func TestNoRunBehindREADs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	a, b := w.newPair(Config{})
	qa, _ := connectPair(a, b, true)
	for i := range 40 {
		a.post(qa, ib.OpRead, b, 3<<10)
		a.waitOK(1)
		if done := a.run(t, responses(a, b, rocev2.PSN(3*i+3))); done != 0 {
			t.Fatalf("a run of %d responses after %d READs", done, i+1)
		}
	}
}

// responses returns responses to a READ of a, as though from b.
func responses(a, b *host, psn rocev2.PSN) (forged []transport.RxPacket) {
	for i := range 5 {
		p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCReadResponseMiddle, PKey: rocev2.DefaultPKey, DestQPN: a.e.AppendQPNs(nil)[0],
			PSN: psn.Add(i)}, Payload: make([]byte, 1024)}
		forged = append(forged, transport.RxPacket{Data: append(p.AppendTo(nil), 0, 0, 0, 0), Src: b.addr, Dst: a.addr,
			SrcPort: rocev2.UDPPort, ICRC: transport.ICRCVerified})
	}
	return forged
}

// Responses to a request that is no READ are no run.
func TestNoRunOfResponses(t *testing.T) {
	t.Parallel()
	for _, op := range []ib.Opcode{ib.OpSend, ib.OpWrite} {
		b, packets := arriving(t, op, 0, 10)
		a := b.w.hosts[packets[0].Src]
		psn := rocev2.PSN(binary.BigEndian.Uint32(packets[0].Data[8:])) & rocev2.PSNMask
		if done := a.run(t, responses(a, b, psn)); done != 0 {
			t.Errorf("%v: a run of %d responses", op, done)
		}
	}
}

// The responses to a READ are a run across the end of the PSNs, too.
func TestRunAcrossTheLastPSN(t *testing.T) {
	t.Parallel()
	to, packets := arriving(t, ib.OpRead, 1<<24-5, 10)
	to.e.Receive(to.w.now, packets[:1])
	if done := to.run(t, packets[1:]); done != 8 {
		t.Errorf("a run of %d packets, want 8", done)
	}
}

// What follows from a packet follows from a run, before anything is sent: less
// is in flight, the queue pair has its turn when there is something to send,
// and an answer that waits does not wait on.
func TestWhatFollowsFromARun(t *testing.T) {
	t.Parallel()
	for _, op := range []ib.Opcode{ib.OpSend, ib.OpWrite, ib.OpRead} {
		to, packets := arriving(t, op, 0, 12)
		to.held = true
		packets[0].TrafficClass |= 3
		if r := to.e.Receive(to.w.now, packets[:1]); !r.Urgent {
			t.Errorf("%v: a marked packet is not urgent", op)
		}
		inFlight := to.e.Usage().InFlight
		r := to.e.Receive(to.w.now, packets[1:6])
		if !r.Taken || !r.Urgent || r.Requests != (op != ib.OpRead) || r.Packets != 5 {
			t.Errorf("%v: a run is %+v", op, r)
		}
		if less := inFlight - to.e.Usage().InFlight; op == ib.OpRead && less < 5<<10 {
			t.Errorf("%v: %d bytes less are in flight after a run of 5 KiB", op, less)
		}
		to.w.tx.Reset()
		to.e.Fill(to.w.now, to.w.tx, AllClasses)
		if to.e.Pending() {
			t.Errorf("%v: all was sent, and there is more", op)
		}
		to.e.Receive(to.w.now, packets[6:11])
		if to.e.Settle() {
			t.Errorf("%v: the queue pair has a turn after a run that nothing is to be said to", op)
		}
		to.e.Receive(to.w.now, packets[11:])
		if pending := to.e.Settle(); op != ib.OpRead && !pending {
			t.Errorf("%v: the queue pair has no turn after the end of its message", op)
		}
	}
}

// A connection may fail in the middle of a run: what is after that is handled
// as what comes to a connection that has failed. Here one without retries asks
// again when the peer is silent, and takes what it has not asked for again as
// lost.
func TestRunOfAConnectionThatFails(t *testing.T) {
	t.Parallel()
	var lines [2][]string
	for i := range lines {
		w := newWorld(t, 5)
		w.alone = i == 0
		a, b := w.newPair(Config{Window: boundless})
		a.strict = true
		qa, _ := connectPair(a, b, true)
		for range 20 {
			a.write(qa, b, 1)
			a.waitOK(1)
		}
		writes := 0
		w.change = func(h *host, p []transport.RxPacket) []transport.RxPacket {
			if h == b && rocev2.Opcode(p[0].Data[0]) == rocev2.RCWriteOnly {
				if writes++; writes == 1 {
					return p[1:] // the READ after it is kept
				}
			}
			if h == a && writes < 2 {
				return nil // and b's NAK is lost
			}
			return p
		}
		w.note = func(format string, args ...any) {
			if !strings.Contains(format, "sends") { // which says where the memory is
				lines[i] = append(lines[i], fmt.Sprintf(format, args...))
			}
		}
		a.held = true
		a.write(qa, b, 1)
		a.post(qa, ib.OpRead, b, 60<<10)
		a.write(qa, b, 1)
		a.held = false
		a.transmit()
		a.wait(3)
		w.sleep(time.Second)
		w.note("%v %+v %+v", a.done, a.e.QPStats(), a.e.counters)
	}
	compareLines(t, lines[0], lines[1])
}

// Runs are handled without memory of their own.
func TestRunsDoNotAllocate(t *testing.T) { // not parallel: it counts allocations
	for _, op := range []ib.Opcode{ib.OpSend, ib.OpWrite, ib.OpRead} {
		to, packets := arriving(t, op, 0, 60)
		to.e.Receive(to.w.now, packets[:1])
		at := 1
		if n := testing.AllocsPerRun(10, func() {
			to.e.Receive(to.w.now, packets[at:at+5])
			at += 5
		}); n != 0 {
			t.Errorf("%v: %v allocations", op, n)
		}
		if got := to.e.QPStats().RxPackets; got < uint64(at) {
			t.Errorf("%v: %d packets were taken, not %d", op, got, at)
		}
	}
}
