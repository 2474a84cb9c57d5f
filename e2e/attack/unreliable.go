package attack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

// UnreliableGuess is a forged packet for a queue pair without
// acknowledgements, whose sender knows the addresses and the QPN, and all but
// one number.
type UnreliableGuess struct {
	Name  string
	What  string
	Space float64 // how many values the number has
	Most  float64 // values with an effect that the service leaves

	typ    ib.QPType
	op     rocev2.Opcode
	middle bool // a message is under way
}

// The spaces of what is guessed.
const qkeySpace = 1 << 32

// UnreliableGuesses returns what UnreliableGuess.Blind measures.
func UnreliableGuesses() []UnreliableGuess {
	return []UnreliableGuess{
		{Name: "uc-send", What: "a SEND over UC to an idle receiver; its PSN is guessed", Space: space, Most: space,
			typ: ib.UC, op: rocev2.UCSendOnly},
		{Name: "uc-last", What: "the end of a SEND over UC to an idle receiver; its PSN is guessed", Space: space, Most: 0,
			typ: ib.UC, op: rocev2.UCSendLast},
		{Name: "uc-middle", What: "a part of a SEND over UC while the peer's is under way; its PSN is guessed. All others have the peer's message dropped",
			Space: space, Most: 1, typ: ib.UC, op: rocev2.UCSendMiddle, middle: true},
		{Name: "ud-qkey", What: "a datagram; its Q_Key is guessed", Space: qkeySpace, Most: 1, typ: ib.UD, op: rocev2.UDSendOnly},
		{Name: "gsi", What: "a management datagram with the Q_Key of the standard; its PSN is guessed", Space: space, Most: space,
			typ: ib.GSI, op: rocev2.UDSendOnly},
	}
}

// A receiver's memory: one receive.
const unreliableRecv = 4096

// Blind tries values from the right one on, and far random others, each on a
// queue pair of its own.
func (g *UnreliableGuess) Blind(seed uint64, far int) (BlindResult, error) {
	r := BlindResult{Name: g.Name, What: g.What, MSNs: space}
	rng := rand.New(rand.NewPCG(seed, 4))
	m, err := newRigMemory(rng)
	if err != nil {
		return r, err
	}
	const near = 150
	var n [2]struct{ replaces, ends, hits int } // near, far
	at := func(d int64, k int) error {
		o, err := g.try(m, d)
		if err != nil {
			return fmt.Errorf("attack: guess %s at distance %d: %w", g.Name, d, err)
		}
		r.Tried++
		if o.replaced {
			n[k].replaces++
		}
		if o.ended {
			n[k].ends++
		}
		if o != (outcome{}) {
			n[k].hits++
		}
		return nil
	}
	for d := int64(-near); d <= near; d++ {
		if err := at(d, 0); err != nil {
			return r, err
		}
	}
	rest := g.Space - 2*near - 1
	for range far {
		if err := at(near+1+rng.Int64N(int64(rest)), 1); err != nil {
			return r, err
		}
	}
	// No sum of weights: rounded, that can be above all values there are.
	all := func(near, hits int) float64 { return float64(near) + float64(hits)*rest/float64(far) }
	r.Replaces, r.Ends, r.Hits = all(n[0].replaces, n[1].replaces), all(n[0].ends, n[1].ends), all(n[0].hits, n[1].hits)
	if r.Hits > g.Most {
		r.Broken = fmt.Sprintf("%.0f values have an effect, more than %.0f", r.Hits, g.Most)
	}
	if r.Hits > 0 {
		r.Random = g.Space / r.Hits
		r.Sweep, r.Young = (r.Random+1)/2, (r.Random+1)/2
	}
	return r, nil
}

// try makes a queue pair, forges a packet whose number is so far from the right
// one, and has the message of the peer that is under way go on.
func (g *UnreliableGuess) try(m *rigMemory, d int64) (o outcome, err error) {
	const qkey = 0x2badcafe
	var done sink
	q, err := qp.New(qp.Config{Type: g.typ, QPN: rigQPN, Memory: m.table, PD: m.pd, SendCQ: &done, RecvCQ: &done,
		MaxRecvWR: 1, MaxRecvSGE: 1, PortMTU: rocev2.MTU1024})
	if err != nil {
		return o, err
	}
	if err := g.connect(q, qkey); err != nil {
		return o, err
	}
	room := m.b[:unreliableRecv]
	clear(room)
	if err := q.PostRecv(&ib.RecvWR{SGList: []ib.SGE{{Addr: m.r.Addr(), Length: unreliableRecv, LKey: m.r.LKey()}}}); err != nil {
		return o, err
	}
	genuine := bytes.Repeat([]byte{0x11}, rocev2.MTU1024.Bytes())
	psn := rocev2.PSN(rigPSN)
	if g.middle {
		if err := g.hand(q, rocev2.UCSendFirst, psn, qkey, genuine); err != nil {
			return o, err
		}
		psn = psn.Next()
	}
	forgedPSN, forgedKey := psn.Add(int(d)), uint32(qkey)
	if g.Space == qkeySpace {
		forgedPSN, forgedKey = psn, uint32(qkey+d)
	}
	if err := g.hand(q, g.op, forgedPSN, forgedKey, bytes.Repeat([]byte{0xee}, len(genuine))); err != nil {
		return o, err
	}
	if g.middle {
		for _, op := range []rocev2.Opcode{rocev2.UCSendMiddle, rocev2.UCSendLast} {
			if err := g.hand(q, op, psn, qkey, genuine); err != nil {
				return o, err
			}
			psn = psn.Next()
		}
		// The forged packet was taken for the next one: its bytes are
		// where those of the peer should be, whether the program is
		// told or not.
		o.replaced = bytes.IndexByte(room, 0xee) >= 0
		return o, nil
	}
	o.ended = q.State() != ib.StateRTS
	o.replaced = done.ok > 0
	return o, nil
}

// connect takes a queue pair to RTS.
func (g *UnreliableGuess) connect(q *qp.QP, qkey uint32) error {
	initial, rtr := ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccess, ib.AttrAV|ib.AttrPathMTU|ib.AttrDestQPN|ib.AttrRQPSN
	switch g.typ {
	case ib.UD:
		initial, rtr = ib.AttrPKeyIndex|ib.AttrPort|ib.AttrQKey, 0
	case ib.GSI:
		initial, rtr = ib.AttrPKeyIndex|ib.AttrQKey, 0
	}
	for _, s := range []struct {
		attr ib.Attr
		mask ib.AttrMask
	}{
		{ib.Attr{State: ib.StateInit, Port: 1, QKey: qkey}, initial},
		{ib.Attr{State: ib.StateRTR, AV: ib.AddressVector{DGID: rigAddr[1]}, PathMTU: rocev2.MTU1024, DestQPN: rigQPN + 1, RQPSN: rigPSN}, rtr},
		{ib.Attr{State: ib.StateRTS, SQPSN: rigPSN}, ib.AttrSQPSN},
	} {
		if err := q.Modify(&s.attr, s.mask|ib.AttrState); err != nil {
			return err
		}
	}
	return nil
}

// hand gives the queue pair a packet from its peer's address.
func (g *UnreliableGuess) hand(q *qp.QP, op rocev2.Opcode, psn rocev2.PSN, qkey uint32, b []byte) error {
	if g.typ == ib.GSI {
		qkey = gsiKey
	}
	raw := encode(op, q.QPN(), psn, func(p *rocev2.Packet) {
		p.BTH.AckReq = false
		p.DETH, p.Payload = rocev2.DETH{QKey: qkey, SrcQPN: 1}, b
	})
	var p rocev2.Packet
	if err := p.Parse(binary.BigEndian.AppendUint32(raw, 0)); err != nil {
		return err
	}
	q.HandlePacket(1, &qp.Arrival{Packet: &p, Src: rigAddr[1], Dst: rigAddr[0]})
	return nil
}

// gsiKey is the Q_Key of the management queue pair (IBTA 10.2.5).
const gsiKey = 0x80010000
