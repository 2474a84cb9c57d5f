package engine

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/internal/captures"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// An input of FuzzDevice is a row of shots: a header of shotHeader bytes, and
// the bytes of a datagram. Flags of a shot say which parts of the datagram are
// made right, so that it gets past the first checks.
const (
	shotHeader = 4 // queue pair, flags, distance of the PSN, length / 2

	shotQPN     = 1 << iota >> 1 // its QPN, partition and version are right
	shotSource                   // its source address is that of the peer
	shotPSN                      // its PSN is so far from the expected one
	shotMemory                   // its key is right, and its address nearly
	shotQKey                     // its Q_Key is right
	shotBadICRC                  // its ICRC is wrong
	shotTime                     // the next timer is due first
	shotProgram                  // the program does something instead
)

// shot appends a shot to an input.
func shot(in []byte, target int, flags byte, distance int8, datagram []byte) []byte {
	n := min(len(datagram)/2, 255)
	in = append(in, byte(target), flags, byte(distance), byte(n))
	return append(in, datagram[:2*n]...)
}

// FuzzDevice hands raw datagrams to an engine that has queue pairs of every
// kind in every state, with and without valid addresses, PSNs, keys and ICRC.
// Whatever comes: nothing panics, memory changes only where access was granted,
// nothing completes that was not posted, and work and memory are bounded.
func FuzzDevice(f *testing.F) {
	for _, in := range deviceSeeds(f) {
		f.Add(in)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		p := newVictim(t)
		for n := 0; len(in) >= shotHeader && n < 64; n++ {
			head := in[:shotHeader]
			size := min(2*int(head[3]), len(in)-shotHeader)
			p.shoot(head, in[shotHeader:shotHeader+size])
			in = in[shotHeader+size:]
		}
		p.end()
	})
}

// shoot does what one shot says.
func (p *victim) shoot(head, raw []byte) {
	q, flags := p.qps[int(head[0])%len(p.qps)], head[1]
	if flags&shotTime != 0 {
		if at, ok := p.e.Deadline(); ok {
			p.w.now = max(p.w.now, at)
		}
		p.e.Advance(p.w.now)
		p.pump()
	}
	if flags&shotProgram != 0 {
		p.program(q, head[2])
		p.check()
		return
	}
	d := transport.RxPacket{Data: bytes.Clone(raw), Src: victimPeer, Dst: p.addr, SrcPort: rocev2.UDPPort, ICRC: transport.ICRCVerified,
		HopLimit: 64, TrafficClass: head[2] & 3}
	if flags&shotSource == 0 {
		d.Src, d.SrcPort = victimPeer6, 0xc000
	} else if q.local {
		d.Src = p.addr
	}
	if flags&shotBadICRC != 0 {
		d.ICRC = transport.ICRCBad
	}
	p.mend(&d, q, flags, int(int8(head[2])))
	if b := d.Data; len(b) > rocev2.BTHLen && flags&shotQPN == 0 && flags&shotSource != 0 {
		d.Dst = testGroup
		if flags&shotQKey != 0 {
			put24(b[5:], uint32(rocev2.MulticastQPN))
		}
	} else if len(b) >= rocev2.BTHLen && bytes.Equal(b[5:8], []byte{0xff, 0xff, 0xff}) {
		d.Dst = testGroup
	}
	p.take(d)
}

// mend makes parts of a datagram right.
func (p *victim) mend(d *transport.RxPacket, q *QP, flags byte, distance int) {
	b := d.Data
	if len(b) < rocev2.BTHLen {
		return
	}
	info, ok := rocev2.Opcode(b[0]).Info()
	if flags&shotQPN != 0 {
		b[1] &^= 0xf
		binary.BigEndian.PutUint16(b[2:], rocev2.DefaultPKey)
		put24(b[5:], uint32(q.QPN()))
	}
	if flags&shotPSN != 0 {
		psn := q.core.Attr().RQPSN
		if ok && info.Role == rocev2.RoleResponse {
			psn = victimPSN
		}
		put24(b[9:], uint32(psn.Add(distance)))
	}
	if !ok || len(b) < info.HeaderLen {
		return
	}
	rest := b[rocev2.BTHLen:]
	if info.Headers.Has(rocev2.HasXRCETH) {
		if flags&shotMemory != 0 {
			put24(rest[1:], victimSRQN)
		}
		rest = rest[rocev2.XRCETHLen:]
	}
	if info.Headers.Has(rocev2.HasDETH) && flags&shotQKey != 0 {
		binary.BigEndian.PutUint32(rest, q.Core().Attr().QKey)
	}
	if info.Headers.Has(rocev2.HasFETH) {
		rest = rest[rocev2.FETHLen:]
	}
	if info.WithInv && flags&shotMemory != 0 {
		key := p.ending.RKey()
		if n := int(rest[3]) % 8; n > 0 {
			key = p.windows[n%len(p.windows)].RKey()
		}
		binary.BigEndian.PutUint32(rest, uint32(key))
	}
	if flags&shotMemory != 0 && (info.Headers.Has(rocev2.HasRETH) || info.Headers.Has(rocev2.HasAtomicETH)) {
		key := p.granted.RKey()
		if n := int(rest[0]); n > 0 {
			key = p.windows[n%len(p.windows)].RKey()
		}
		near := binary.BigEndian.Uint64(rest) & 0x3fff // may lie after the region
		binary.BigEndian.PutUint64(rest, p.granted.Addr()+near-16)
		binary.BigEndian.PutUint32(rest[8:], uint32(key))
	}
}

func put24(b []byte, v uint32) { b[0], b[1], b[2] = byte(v>>16), byte(v>>8), byte(v) }

// program does what a program may do between two packets.
func (p *victim) program(q *QP, what byte) {
	state := q.Core().State()
	switch what % 7 {
	case 0:
		p.receive(q)
		p.share(&p.shared)
		p.share(&p.xrc)
	case 1:
		if state != ib.StateReset {
			p.modify(q, ib.Attr{State: ib.StateErr}, ib.AttrState)
		}
	case 2:
		clear(p.want[q.QPN()]) // forgotten, not completed
		p.modify(q, ib.Attr{State: ib.StateReset}, ib.AttrState)
	case 3:
		if state == ib.StateReset {
			p.init(q, q.Core().Type())
			p.receive(q)
		}
	case 4:
		if state == ib.StateInit {
			p.connectTo(q, q.Core().Type(), ib.AddressVector{DGID: victimPeer}, ib.StateRTS)
		}
	case 6:
		if !p.e.Detach(q, testGroup) && q.Core().Type() == ib.UD {
			p.e.Attach(q, testGroup)
		}
	case 5: // responder resources change while they are in use
		if state == ib.StateSQD && q.Core().Type() == ib.RC {
			a := ib.Attr{MaxDestRdAtomic: what / 7 % 16}
			_ = p.e.Modify(q, &a, ib.AttrMaxDestRdAtomic) // refused while answers wait
		}
	}
	p.pump()
}

// aimed are the flags of a datagram that is right in everything.
const aimed = shotQPN | shotSource | shotPSN | shotMemory | shotQKey

// groupShot are the flags of a datagram for the group, aimed at firstUD.
const (
	groupShot = shotSource | shotQKey
	firstUD   = 18 // of victimKinds
)

// deviceSeeds are packets of every opcode at every queue pair, and what kernels
// have sent, as it was and aimed.
func deviceSeeds(t testing.TB) (seeds [][]byte) {
	return append(opcodeSeeds(), captured(t)...)
}

func opcodeSeeds() (seeds [][]byte) {
	for op := range 256 {
		info, ok := rocev2.Opcode(op).Info()
		if !ok && op != 0xff && op != 0x15 {
			continue
		}
		pkt := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.Opcode(op), DestQPN: rocev2.MulticastQPN, PKey: rocev2.DefaultPKey, AckReq: true}}
		pkt.RETH, pkt.AETH.Syndrome = rocev2.RETH{VA: 64, Length: 64}, rocev2.ACKNoCredits
		pkt.AtomicETH.VA, pkt.FETH.Type = 64, rocev2.FlushGlobal
		switch info.Payload {
		case rocev2.PayloadMTU:
			pkt.RETH.Length, pkt.Payload = 2*victimMTU, make([]byte, victimMTU)
		case rocev2.PayloadNonEmpty, rocev2.PayloadAny:
			pkt.Payload = make([]byte, 64)
		case rocev2.PayloadEight:
			pkt.RETH.Length, pkt.Payload = 8, make([]byte, 8)
		}
		b := append(pkt.AppendTo(nil), 1, 2, 3, 4)
		in := shot(nil, 0, 0, 0, b)
		for target := range victimKinds {
			in = shot(in, target, aimed, 0, b)
		}
		in = shot(shot(in, 0, aimed, 1, b), 0, aimed, -1, b)
		in = shot(in, firstUD, groupShot, 0, b)
		seeds = append(seeds, in)
	}
	for i := range byte(12) {
		seeds = append(seeds, shot(shot(nil, int(i), shotProgram|shotTime, int8(i), nil), int(i), shotProgram, int8(i+1), nil))
	}
	return seeds
}

// captured makes a seed of the first packets of each golden capture.
func captured(t testing.TB) (seeds [][]byte) {
	names, err := filepath.Glob("../../rocev2/testdata/golden/*.pcap")
	if err != nil || len(names) < 10 {
		t.Fatalf("%d golden captures: %v", len(names), err)
	}
	const ethernet, ipv4, ipv6, udp, packets = 14, 20, 40, 8, 8
	for _, name := range names {
		var in []byte
		frames, _ := captures.File(t, name)
		for i, b := range frames[:min(len(frames), packets)] {
			b = b[ethernet:]
			if b[0]>>4 == 4 {
				b = b[ipv4+udp : binary.BigEndian.Uint16(b[2:])]
			} else {
				b = b[ipv6+udp : ipv6+binary.BigEndian.Uint16(b[4:])]
			}
			in = shot(in, i, 0, 0, b)
			in = shot(in, i, aimed, 0, b)
		}
		seeds = append(seeds, in)
	}
	return seeds
}

// TestDeviceSeedsHit checks that the seeds of FuzzDevice get past the checks:
// an attack that nothing notices shows nothing.
func TestDeviceSeedsHit(t *testing.T) {
	t.Parallel()
	seeds, hit := opcodeSeeds(), map[rocev2.Service]int{}
	for i := range victimKinds {
		k := &victimKinds[i]
		if k.state != ib.StateRTS || k.busy && k.typ == ib.RC || k.self || k.typ == ib.XRCInitiator {
			continue
		}
		for _, in := range seeds {
			info, ok := rocev2.Opcode(in[min(shotHeader, len(in)-1)]).Info()
			if in[1] != 0 || !ok || info.Role != rocev2.RoleRequest || info.Service != k.typ.Service() {
				continue
			}
			p := newVictim(t)
			size := 2 * int(in[3])
			p.shoot([]byte{byte(i), aimed, 0, in[3]}, in[shotHeader:shotHeader+size])
			s := p.qps[i].Core().Stats()
			dropped := s.Drops.Total()
			if hit[info.Service]++; info.First && dropped > 0 {
				t.Errorf("%v is dropped by queue pair %d, %v", info.Name, i, k.typ)
			}
		}
	}
	if hit[rocev2.ServiceRC] < 15 || hit[rocev2.ServiceUC] < 12 || hit[rocev2.ServiceUD] < 2 || hit[rocev2.ServiceXRC] < 15 {
		t.Errorf("packets by service: %v", hit)
	}
}

// A datagram of FuzzDevice to the group reaches every queue pair that may take
// it, in RTR and beyond, once.
func TestGroupShotHits(t *testing.T) {
	t.Parallel()
	p := newVictim(t)
	pkt := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.UDSendOnly, PKey: rocev2.DefaultPKey}, Payload: make([]byte, 64)}
	raw := append(pkt.AppendTo(nil), 0, 0, 0, 0)
	before := make([]uint64, len(p.qps))
	for i, q := range p.qps {
		before[i] = q.Core().Stats().RecvDone
	}
	p.shoot([]byte{firstUD, groupShot, 0, byte(len(raw) / 2)}, raw)
	for i, q := range p.qps {
		want := uint64(0)
		if k := &victimKinds[i]; k.typ == ib.UD && k.state >= ib.StateRTR && k.state != ib.StateErr {
			want = 1
		}
		if got := q.Core().Stats().RecvDone - before[i]; got != want {
			t.Errorf("queue pair %d, %v %v: %d datagrams", i, q.Core().Type(), q.Core().State(), got)
		}
	}
}
