package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/internal/testshort"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// What happens is the same, packet for packet, whether what arrives together is
// received as a batch, and so in runs, or one by one: what is sent, completed,
// counted and written. Packets are lost, doubled, exchanged, marked and forged.
// The program changes queue pairs and ends regions in the middle of messages.
func TestRunsAreThePacketsOneByOne(t *testing.T) {
	t.Parallel()
	for seed := range testshort.Rounds[uint64](24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			compareRuns(t, seed)
		})
	}
}

// FuzzRuns looks for a seed for which it is not.
func FuzzRuns(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(compareRuns)
}

func compareRuns(t *testing.T, seed uint64) {
	compareLines(t, runWorld(t, seed, true), runWorld(t, seed, false))
}

// compareLines compares what happened one by one, and in runs.
func compareLines(t *testing.T, want, got []string) {
	t.Helper()
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			for _, before := range want[max(0, i-5):i] {
				t.Log(before)
			}
			t.Fatalf("line %d\none by one: %s\nin runs:    %s", i, want[i], got[i])
		}
	}
	if len(want) != len(got) {
		t.Fatalf("%d lines one by one, %d in runs", len(want), len(got))
	}
}

// runScene is a world for which nothing but the seed, and whether packets are
// received alone, decides what happens.
type runScene struct {
	*world
	lines  []string
	a, b   *host
	vector bool // no memory is local
	rough  int  // of 1000 packets, how many are changed
	pairs  [2][2]*QP
	mr     *memreg.Region // of b, which may go
}

// runWorld returns all that happened.
func runWorld(t *testing.T, seed uint64, alone bool) []string {
	s := &runScene{world: newWorld(t, seed)}
	s.world.alone = alone
	s.note = func(format string, args ...any) { s.lines = append(s.lines, fmt.Sprintf(format, args...)) }
	s.a, s.b = s.newPair(Config{ReadChunk: 1 << (12 + s.rng.IntN(6))})
	s.loss = []float64{0, 0.002, 0.02}[s.rng.IntN(3)]
	s.rough = []int{0, 2, 20}[s.rng.IntN(3)]
	s.change = s.changeSome
	if s.vector = seed%2 == 1; s.vector {
		s.a.vectored()
		s.b.vectored()
	}
	for i := range s.a.mem {
		s.a.mem[i], s.b.mem[i] = byte(s.rng.Uint32()), byte(s.rng.Uint32())
	}
	for range 3 {
		s.round()
	}
	return s.lines
}

// round has two connections carry messages of all kinds, side by side.
func (s *runScene) round() {
	first := []rocev2.PSN{0, 1<<24 - 40, 1<<20 - 70, 1<<23 - 33}[s.rng.IntN(4)]
	s.a.psn, s.b.psn = first, first
	s.a.mtu = []rocev2.MTU{rocev2.MTU256, rocev2.MTU1024, rocev2.MTU4096}[s.rng.IntN(3)]
	s.b.mtu = s.a.mtu
	s.a.strict = s.rng.IntN(8) == 0
	var err error
	m := memreg.Local(s.b.mem[1<<19:])
	if s.vector {
		m = vectored(s.b.mem[1<<19:])
	}
	s.mr, err = s.b.table.Register(s.b.pd, m, // an address that is the same in every run
		memreg.Options{Access: ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead, Base: memreg.BaseIOVA, IOVA: 1 << 32})
	s.must(err)
	for i := range s.pairs {
		s.pairs[i][0], s.pairs[i][1] = connectPair(s.a, s.b, s.rng.IntN(3) > 0)
	}
	for range 6 {
		for i := range s.pairs {
			s.message(s.pairs[i][0], s.pairs[i][1])
		}
		s.sleep(time.Duration(s.rng.IntN(4)) * time.Millisecond)
		if s.rng.IntN(12) == 0 {
			s.interfere()
		}
	}
	s.sleep(time.Second)
	for _, h := range []*host{s.a, s.b} {
		s.note("%v: %+v %+v %+v", h.addr, h.e.counters, h.e.QPStats(), h.e.Usage().InFlight)
		s.note("memory %x", crc32.ChecksumIEEE(h.mem))
		if got, sum := h.e.counters.Payload, h.e.QPStats().RxBytes; got != sum {
			s.t.Errorf("%v: %d bytes of payload, the queue pairs have counted %d", h.addr, got, sum)
		}
	}
	for _, p := range s.pairs {
		s.a.destroy(p[0])
		s.b.destroy(p[1])
	}
	if s.mr.Alive() {
		s.must(s.b.table.Deregister(s.mr))
	}
}

// message posts a message between qa and qb. Some receives are too short.
func (s *runScene) message(qa, qb *QP) {
	n := uint32(1 + s.rng.IntN(100<<10))
	if s.rng.IntN(2) == 0 {
		n = max(n&^4095, 4096) // the last packet is no shorter
	}
	off := uint64(s.rng.IntN(1<<19 - int(n) + 1))
	wr := ib.SendWR{Opcode: []ib.Opcode{ib.OpWrite, ib.OpSend, ib.OpRead}[s.rng.IntN(3)], Signaled: true,
		SGList: []ib.SGE{s.a.mr.SGE(off, n)}}
	wr.Remote = ib.RemoteAddr{Addr: s.mr.Addr() + off, RKey: s.mr.RKey()}
	if wr.Opcode == ib.OpSend {
		cut := uint32(s.rng.IntN(int(n) + 1))
		left := n - cut
		if s.rng.IntN(20) == 0 {
			left /= 2
		}
		_, err := s.b.e.PostRecv(qb, []ib.RecvWR{{SGList: []ib.SGE{s.mr.SGE(off, cut), s.mr.SGE(off+uint64(cut), left)}}})
		s.note("receive: %v", err)
	}
	_, err := s.a.e.PostSend(qa, []ib.SendWR{wr})
	s.note("%v of %d bytes: %v", wr.Opcode, n, err)
	s.a.transmit()
}

// interfere is what the program of b does in the middle of messages.
func (s *runScene) interfere() {
	q := s.pairs[s.rng.IntN(2)][1]
	var err error
	switch s.rng.IntN(4) {
	case 0:
		if s.mr.Alive() {
			err = s.b.table.Deregister(s.mr)
		}
	case 1:
		err = s.b.e.Modify(q, &ib.Attr{State: ib.StateErr}, ib.AttrState)
	case 2:
		err = s.b.e.Modify(q, &ib.Attr{Access: ib.RemoteRead}, ib.AttrAccess)
	case 3:
		err = s.b.e.Modify(q, &ib.Attr{State: ib.StateSQD}, ib.AttrState)
	}
	s.note("interfered: %v", err)
	s.b.transmit()
}

// changeSome changes some of the packets that arrive.
func (s *runScene) changeSome(_ *host, packets []transport.RxPacket) (out []transport.RxPacket) {
	for i, p := range packets {
		if s.rng.IntN(1000) >= s.rough {
			out = append(out, p)
			continue
		}
		f := p
		f.Data = bytes.Clone(p.Data)
		switch s.rng.IntN(6) {
		case 0:
			p.TrafficClass |= 3
			out = append(out, p)
		case 1:
			p.ICRC = transport.ICRCBad
			out = append(out, p)
		case 2:
			s.forge(&f)
			out = append(out, f, p)
		case 3:
			s.forge(&f)
			out = append(out, p, f)
		case 4:
			if last := len(out) - 1; last >= 0 {
				out[last], p = p, out[last]
			}
			out = append(out, p)
		case 5:
			return append(out, s.asMiddle(packets[i:])...)
		}
	}
	return out
}

// asMiddle returns packets that say that they are the middle of a message.
func (s *runScene) asMiddle(packets []transport.RxPacket) (out []transport.RxPacket) {
	op := middles[s.rng.IntN(len(middles))]
	for _, p := range packets {
		p.Data = bytes.Clone(p.Data)
		p.Data[0] = byte(op)
		out = append(out, p)
	}
	return out
}

var middles = []rocev2.Opcode{rocev2.RCSendMiddle, rocev2.RCWriteMiddle, rocev2.RCReadResponseMiddle}

// forge makes f another packet.
func (s *runScene) forge(f *transport.RxPacket) {
	h := f.Data[:rocev2.BTHLen]
	word := binary.BigEndian.Uint32(h[8:])
	switch s.rng.IntN(12) {
	case 0:
		f.SrcPort++
	case 1:
		f.Src = addrOf(77)
	case 2:
		h[0] = byte(middles[s.rng.IntN(len(middles))])
	case 3:
		h[1] ^= byte(1 << s.rng.IntN(8))
	case 4:
		h[2+s.rng.IntN(2)] ^= byte(1 << s.rng.IntN(8))
	case 5:
		h[5+s.rng.IntN(3)] ^= byte(1 << s.rng.IntN(8))
	case 6:
		h[8] ^= byte(1 << s.rng.IntN(8))
	case 7:
		binary.BigEndian.PutUint32(h[8:], word&^0xffffff|(word+uint32(s.rng.IntN(7)-3))&0xffffff)
	case 8:
		f.Data = f.Data[:max(rocev2.BTHLen+rocev2.ICRCLen, len(f.Data)-4*s.rng.IntN(40))]
	case 9:
		f.Data[s.rng.IntN(len(f.Data))] ^= 0xff
	case 10:
		f.Dst = addrOf(78)
	case 11: // twice the same
	}
}
