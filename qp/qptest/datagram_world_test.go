package qptest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

// dgramWorld is a seeded world of an unreliable service: one side sends random
// messages over a network that loses, doubles and reorders packets, the other
// one posts receives, too few at times.
type dgramWorld struct {
	rng       *rand.Rand
	typ       ib.QPType
	mtu       int
	from, to  *endpoint
	flow      rocev2.Flow
	toAH      *ib.AddressHandle
	rx, tx    []byte // memory of both: a slot for each message
	rxReg     ib.SGE // the whole of each
	txReg     ib.SGE
	rkey      ib.Key
	sent      []dgramMessage
	wire      [][]byte
	clean     bool // the network loses nothing any more
	recvSlot  map[uint64]int
	nextRecv  uint64
	completed uint64 // receives that have
	got       []int  // numbers of the messages that have arrived, in order
}

// dgramMessage is a message of the model.
type dgramMessage struct {
	op ib.Opcode
	n  int
}

const (
	dgramMessages = 120
	dgramSlots    = dgramMessages + 40 // those after the losses too
	dgramPackets  = 6                  // of a message, at most
	dgramMemory   = 0x10000
)

func newDgramWorld(seed uint64, typ ib.QPType) (*dgramWorld, error) {
	w := &dgramWorld{rng: rand.New(rand.NewPCG(seed, 11)), typ: typ, recvSlot: map[uint64]int{}}
	mtu := []rocev2.MTU{rocev2.MTU256, rocev2.MTU512, rocev2.MTU1024}[w.rng.IntN(3)]
	w.mtu = mtu.Bytes()
	var nodes [2]*node
	for i := range nodes {
		nodes[i] = newNode(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), w.rng.Uint32)
	}
	size := dgramSlots * w.slot()
	w.tx, w.rx = make([]byte, size), make([]byte, 2*size)
	tx, err := nodes[0].register(nodes[0].pd, w.tx, dgramMemory, accessLocal)
	if err != nil {
		return nil, err
	}
	rx, err := nodes[1].register(nodes[1].pd, w.rx, dgramMemory, accessAll)
	if err != nil {
		return nil, err
	}
	w.txReg, w.rxReg, w.rkey = tx.SGE(0, uint32(size)), rx.SGE(0, uint32(2*size)), rx.RKey()
	w.flow = rocev2.NewFlow(nodes[0].addr, nodes[1].addr, 0xc000, rocev2.UDPPort)
	w.toAH = &ib.AddressHandle{Domain: nodes[0].pd}
	w.toAH.SetVector(&ib.AddressVector{DGID: nodes[1].addr})
	for i, e := range []**endpoint{&w.from, &w.to} {
		c := qp.Config{QPN: rocev2.QPN(0x11 + i), Type: typ, PortMTU: mtu, MaxSendWR: 8, MaxRecvWR: 64, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: 64}
		if *e, err = newEndpoint(nodes[i], c); err != nil {
			return nil, err
		}
		psn := rocev2.PSN(w.rng.Uint32()) & rocev2.PSNMask
		if w.rng.IntN(2) == 0 {
			psn = 0xffffff - rocev2.PSN(w.rng.IntN(100))
		}
		err = (*e).connect(ib.Attr{State: ib.StateRTS, Access: accessWrite, Port: 1, AV: ib.AddressVector{DGID: nodes[1-i].addr},
			PathMTU: mtu, SQPSN: psn, RQPSN: psn, DestQPN: rocev2.QPN(0x12 - i), QKey: defaultQKey})
		if err != nil {
			return nil, err
		}
	}
	return w, nil
}

// slot is the memory of one message.
func (w *dgramWorld) slot() int { return dgramPackets*1024 + rocev2.GRHLen }

// header is how many bytes of a receive come before the message.
func (w *dgramWorld) header() int {
	if w.typ == ib.UD {
		return rocev2.GRHLen
	}
	return 0
}

// contents are the bytes of message i: none is zero, and the first ones tell
// its number.
func contents(i, n int) []byte {
	b := make([]byte, n)
	for k := range b {
		b[k] = byte(1 + (i*31+k*7+k>>7)%255)
	}
	if n >= 4 {
		binary.LittleEndian.PutUint32(b, uint32(i)|0x01010000)
	}
	return b
}

// post sends the next message.
func (w *dgramWorld) post() error {
	i := len(w.sent)
	most, ops := dgramPackets*w.mtu, []ib.Opcode{ib.OpSend, ib.OpSendImm, ib.OpWrite, ib.OpWriteImm}
	if w.typ == ib.UD {
		most, ops = w.mtu, ops[:2]
	}
	m := dgramMessage{op: ops[w.rng.IntN(len(ops))], n: 4 + w.rng.IntN(most-3)}
	switch w.rng.IntN(6) {
	case 0:
		m.n = min(most, w.mtu*(1+w.rng.IntN(3)))
	case 1:
		m.n = 4 + w.rng.IntN(20)
	}
	copy(w.tx[i*w.slot():], contents(i, m.n))
	wr := ib.SendWR{ID: uint64(i), Opcode: m.op, Signaled: true, Imm: uint32(i), AH: w.toAH, RemoteQPN: w.to.QPN(), RemoteQKey: defaultQKey,
		Remote: ib.RemoteAddr{Addr: dgramMemory + uint64(i*w.slot()), RKey: w.rkey}}
	at := w.txReg.Addr + uint64(i*w.slot())
	cut := w.rng.IntN(m.n + 1)
	wr.SGList = []ib.SGE{{Addr: at, Length: uint32(cut), LKey: w.txReg.LKey}, {Addr: at + uint64(cut), Length: uint32(m.n - cut), LKey: w.txReg.LKey}}
	if w.rng.IntN(2) == 0 {
		wr.SGList = []ib.SGE{{Addr: at, Length: uint32(m.n), LKey: w.txReg.LKey}}
	}
	if m.n <= 64 && w.rng.IntN(2) == 0 {
		wr.SGList, wr.Inline = nil, contents(i, m.n)
	}
	w.sent = append(w.sent, m)
	return w.from.PostSend(&wr)
}

// recv posts a receive, which has a slot of its own after those that WRITEs go
// to.
func (w *dgramWorld) recv() error {
	slot := dgramSlots + int(w.nextRecv)%dgramSlots
	w.recvSlot[w.nextRecv] = slot
	clear(w.rx[slot*w.slot():][:w.slot()])
	err := w.to.PostRecv(&ib.RecvWR{ID: w.nextRecv, SGList: []ib.SGE{{Addr: w.rxReg.Addr + uint64(slot*w.slot()), Length: uint32(w.slot()), LKey: w.rxReg.LKey}}})
	w.nextRecv++
	return err
}

// transmit polls at most that many packets onto the wire.
func (w *dgramWorld) transmit(most int) {
	var one onePacket
	for range most {
		if w.from.Poll(0, qp.Limit{Packets: 1}, &one).Packets == 0 {
			return
		}
		w.wire = append(w.wire, w.flow.Seal(0, one.buf[:one.n:one.n]))
	}
}

// deliver brings a packet of the wire to the receiver.
func (w *dgramWorld) deliver() error {
	i := 0
	if !w.clean && w.rng.IntN(15) == 0 {
		i = w.rng.IntN(min(len(w.wire), 4))
	}
	b := w.wire[i]
	dup := !w.clean && w.rng.IntN(30) == 0
	if !dup {
		w.wire = append(w.wire[:i], w.wire[i+1:]...)
	}
	if !w.clean && w.rng.IntN(12) == 0 {
		return nil // lost
	}
	var p rocev2.Packet
	if err := p.Parse(b); err != nil {
		return err
	}
	w.to.HandlePacket(0, arrival(w.from.node.addr, w.to.node.addr, &p, false))
	return w.check()
}

// check looks at what has completed.
func (w *dgramWorld) check() error {
	for _, wc := range w.to.recvCQ.drain() {
		if wc.Status != ib.StatusSuccess || wc.ID != w.completed {
			return fmt.Errorf("completion %v, want success of %d", wc, w.completed)
		}
		w.completed++
		slot := w.rx[w.recvSlot[wc.ID]*w.slot():][:w.slot()]
		i, n := int(wc.Imm), int(wc.ByteLen)-w.header()
		at := slot[w.header():]
		if wc.Opcode == ib.WCRecvWriteImm {
			at = w.rx[i*w.slot():][:w.slot()]
		} else if !wc.WithImm {
			i = int(binary.LittleEndian.Uint32(at)) &^ 0x01010000
		}
		if i >= len(w.sent) || w.sent[i].n != n {
			return fmt.Errorf("a message %d of %d bytes was never sent", i, n)
		}
		m := w.sent[i]
		if wc.WithImm != (m.op == ib.OpSendImm || m.op == ib.OpWriteImm) || (wc.Opcode == ib.WCRecvWriteImm) != (m.op == ib.OpWriteImm) {
			return fmt.Errorf("message %d, %v, completes as %v", i, m.op, wc)
		}
		if !bytes.Equal(at[:n], contents(i, n)) {
			return fmt.Errorf("message %d, %v of %d bytes, has other bytes", i, m.op, n)
		}
		w.got = append(w.got, i)
	}
	return nil
}

// checkMemory finds bytes that no message has written.
func (w *dgramWorld) checkMemory() error {
	for i := range dgramSlots {
		slot, n := w.rx[i*w.slot():][:w.slot()], 0
		if i < len(w.sent) && (w.sent[i].op == ib.OpWrite || w.sent[i].op == ib.OpWriteImm) {
			n = w.sent[i].n
		}
		want := contents(i, n)
		for k, b := range slot {
			if b != 0 && (k >= n || b != want[k]) {
				return fmt.Errorf("slot %d of %d bytes has %#x at %d", i, n, b, k)
			}
		}
	}
	return nil
}

func (w *dgramWorld) run() error {
	for len(w.sent) < dgramMessages || len(w.wire) > 0 {
		var err error
		switch k := w.rng.IntN(10); {
		case k < 2 && len(w.sent) < dgramMessages && w.from.Stats().SendPosted == w.from.Stats().SendDone:
			err = w.post()
		case k < 4 && w.nextRecv-w.completed < 8:
			err = w.recv()
		case k < 6:
			w.transmit(1 + w.rng.IntN(8))
		case len(w.wire) > 0:
			err = w.deliver()
		}
		if err != nil {
			return err
		}
		if w.from.State() != ib.StateRTS || w.to.State() != ib.StateRTS {
			return fmt.Errorf("states %v and %v", w.from.State(), w.to.State())
		}
	}
	w.clean = true
	w.transmit(1 << 20)
	for len(w.wire) > 0 {
		if err := w.deliver(); err != nil {
			return err
		}
	}
	return w.runClean()
}

// runClean sends messages when nothing is lost any more, and receives are
// there: all arrive, in order.
func (w *dgramWorld) runClean() error {
	before := len(w.sent)
	w.got = nil
	for w.nextRecv-w.completed < 50 {
		if err := w.recv(); err != nil {
			return err
		}
	}
	for range 30 {
		if err := w.post(); err != nil {
			return err
		}
		w.transmit(1 << 20)
	}
	for len(w.wire) > 0 {
		if err := w.deliver(); err != nil {
			return err
		}
	}
	var want []int
	for i := before; i < len(w.sent); i++ {
		if w.sent[i].op != ib.OpWrite {
			want = append(want, i)
		}
	}
	if fmt.Sprint(w.got) != fmt.Sprint(want) {
		return fmt.Errorf("messages %v have arrived, want %v", w.got, want)
	}
	for i := before; i < len(w.sent); i++ {
		if m := w.sent[i]; m.op == ib.OpWrite && !bytes.Equal(w.rx[i*w.slot():][:m.n], contents(i, m.n)) {
			return fmt.Errorf("WRITE %d of %d bytes has not arrived", i, m.n)
		}
	}
	return w.checkMemory()
}

// TestDatagramWorld plays seeded worlds of UC and UD: every receive that
// completes has exactly the bytes of one message; and when the losses end, all
// arrives from the next message on, in order.
func TestDatagramWorld(t *testing.T) {
	t.Parallel()
	for _, typ := range []ib.QPType{ib.UC, ib.UD} {
		t.Run(typ.String(), func(t *testing.T) {
			t.Parallel()
			var arrived, sent, dropped uint64
			for i := range uint64(seedsOf()) {
				w, err := newDgramWorld(*firstSeed+i, typ)
				if err != nil {
					t.Fatal(err)
				}
				if err := w.run(); err != nil {
					t.Fatalf("seed %d: %v", *firstSeed+i, err)
				}
				arrived, sent = arrived+w.completed, sent+uint64(len(w.sent))
				dropped += w.to.Stats().MessagesDropped
			}
			t.Logf("%d messages, %d receives, %d messages dropped in the middle", sent, arrived, dropped)
			if typ == ib.UC && dropped == 0 || arrived == 0 {
				t.Error("too little has happened")
			}
		})
	}
}
