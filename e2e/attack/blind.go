package attack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Guess is one forged packet whose sender knows the addresses and the QPN, but
// not the PSN.
type Guess struct {
	Name     string
	What     string
	Own      bool // the peer is known to be of our kind
	InFlight int  // messages, or packets of a READ, that the victim has in flight
	Most     int  // PSNs with an effect that the protocol, or this software's bounds, leave

	read     bool // the victim has a READ outstanding, not messages
	op       rocev2.Opcode
	syndrome rocev2.Syndrome
}

// BlindResult says how many packets a guess needs. The numbers of packets are
// extrapolated from the PSNs tried to the space of 2^24, for one known QPN; who
// does not know it either needs 2^24 / number of queue pairs times as many.
type BlindResult struct {
	Name     string  `json:"name"`
	What     string  `json:"what"`
	Tried    int     `json:"tried"`    // PSNs tried, each on a connection of its own
	Ends     float64 `json:"ends"`     // PSNs of 2^24 with which the connection ends
	Replaces float64 `json:"replaces"` // with which the program gets what its peer has not sent
	Lies     float64 `json:"lies"`     // with which a request completes with SUCCESS that the peer has not executed
	Hits     float64 `json:"hits"`     // with any of these
	Run      int     `json:"run"`      // longest row of them
	Random   float64 `json:"random"`   // packets until a hit with random PSNs, on average; 0: there is none
	Sweep    float64 `json:"sweep"`    // the same with PSNs that lie Run apart
	Broken   string  `json:"broken,omitempty"`
}

// reorderPackets is how far past the last expected or kept packet a packet may
// be kept.
const reorderPackets = 128

// readHere of a READ's packets have arrived when a response is forged, readLeft
// have not.
const (
	readHere = 10
	readLeft = rigRead>>10 - readHere
)

// Guesses returns what Blind measures.
func Guesses() []Guess {
	var g []Guess
	for _, own := range []bool{false, true} {
		most, in, kind := 1, 128, "foreign"
		if own {
			most, in, kind = 1+reorderPackets, ownPackets, "own"
		}
		g = append(g,
			Guess{Name: "send/" + kind, What: "a SEND to an idle responder", op: rocev2.RCSendOnly, Own: own, Most: most},
			Guess{Name: "invalid/" + kind, What: "a SEND_LAST without a FIRST to an idle responder", op: rocev2.RCSendLast, Own: own, Most: most},
			Guess{Name: "wrong-key/" + kind, What: "a WRITE with a wrong rkey to an idle responder", op: rocev2.RCWriteOnly, Own: own, Most: most},
			Guess{Name: "ack/" + kind, What: fmt.Sprintf("an ACK to a requester with %d messages in flight, which are lost", in),
				op: rocev2.RCAcknowledge, syndrome: rocev2.ACKNoCredits, Own: own, InFlight: in, Most: in},
			Guess{Name: "nak-sequence/" + kind, What: fmt.Sprintf("a sequence NAK, %d messages in flight", in),
				op: rocev2.RCAcknowledge, syndrome: rocev2.NAKSequence, Own: own, InFlight: in, Most: in},
			Guess{Name: "nak-access/" + kind, What: fmt.Sprintf("a remote access NAK, %d messages in flight", in),
				op: rocev2.RCAcknowledge, syndrome: rocev2.NAKRemoteAccess, Own: own, InFlight: in, Most: in},
			Guess{Name: "rnr/" + kind, What: fmt.Sprintf("an RNR NAK, %d messages in flight", in),
				op: rocev2.RCAcknowledge, syndrome: rocev2.SyndromeRNR(1), Own: own, InFlight: in, Most: in},
			Guess{Name: "read-response/" + kind, What: fmt.Sprintf("a READ response, %d more of a READ in flight", readLeft),
				op: rocev2.RCReadResponseMiddle, Own: own, InFlight: readLeft, Most: min(most, readLeft), read: true},
			Guess{Name: "nak-access-idle/" + kind, What: "a remote access NAK to an idle requester",
				op: rocev2.RCAcknowledge, syndrome: rocev2.NAKRemoteAccess, Own: own},
		)
	}
	return g
}

// survey is a BlindResult under way.
type survey struct {
	BlindResult
	guess  *Guess
	memory *rigMemory
	run    int // PSNs with an effect in a row, up to here
}

// Blind tries the guess at every distance near the PSN that the victim expects,
// in the middle of every step PSNs up to 9000 ahead, and at far random others.
func (g *Guess) Blind(seed uint64, step, far int) (BlindResult, error) {
	const reach = 9000
	rng := rand.New(rand.NewPCG(seed, 2))
	s := survey{BlindResult: BlindResult{Name: g.Name, What: g.What}, guess: g}
	var err error
	if s.memory, err = newRigMemory(rng); err != nil {
		return s.BlindResult, err
	}
	near, most := 150, float64(g.Most)
	if g.InFlight > near {
		near, far = 8, max(far/10, 1) // for each costs as many messages
		most += float64(step) / 2     // what a sample may be wrong
	}
	for d := -near; d <= near && err == nil; d++ {
		err = s.try(d, 1)
	}
	for d := near + 1 + step/2; d < reach && err == nil; d += step {
		err = s.try(d, step)
	}
	rest := 1<<24 - reach - near
	for range far {
		if err != nil {
			break
		}
		s.run = 0
		err = s.try(reach+rng.IntN(rest), rest/far)
	}
	if s.Hits > 0 {
		s.Random = (1 << 24) / s.Hits
		s.Sweep = (1 << 24) / float64(s.Run) / 2
	}
	if s.Hits > most {
		s.Broken = fmt.Sprintf("%.0f PSNs have an effect, more than %d: one of %.0f packets hits", s.Hits, g.Most, s.Random)
	}
	return s.BlindResult, err
}

// try tries one distance, which stands for so many.
func (s *survey) try(d, weight int) error {
	o, err := s.guess.try(s.memory, d)
	if err != nil {
		return fmt.Errorf("attack: guess %s at distance %d: %w", s.Name, d, err)
	}
	s.Tried++
	if o == (outcome{}) {
		s.run = 0
		return nil
	}
	s.run += weight
	s.Run = max(s.Run, s.run)
	s.Hits += float64(weight)
	for _, x := range []struct {
		yes bool
		sum *float64
	}{{o.ended, &s.Ends}, {o.replaced, &s.Replaces}, {o.lied, &s.Lies}} {
		if x.yes {
			*x.sum += float64(weight)
		}
	}
	return nil
}

// outcome is what a forged packet did to a connection.
type outcome struct{ ended, replaced, lied bool }

// follow is how many messages follow those that reach the forged PSN.
const follow = 12

// maxReach is how far ahead messages follow a guess. What lies further away must
// show its effect without.
const maxReach = 10_000

// try makes a connection, forges a packet d PSNs from the expected one, and lets
// the connection go on.
func (g *Guess) try(m *rigMemory, d int) (outcome, error) {
	n := follow + g.InFlight
	if d > 0 && d < maxReach && !g.read {
		n = max(n, d+follow)
	}
	r, err := newRig(m, g.Own, n)
	if err != nil {
		return outcome{}, err
	}
	if g.read {
		return g.tryRead(m, r, d)
	}
	clear(m.b)
	toRequester := g.syndrome != 0
	first := 4 // so that there is something behind
	if err := r.send(first); err != nil {
		return outcome{}, err
	}
	if err := r.finish(); err != nil {
		return outcome{}, err
	}
	victim, psn := r.b, r.b.Attr().RQPSN
	if toRequester {
		victim, psn = r.a, r.a.Attr().SQPSN
		if err := r.send(g.InFlight); err != nil {
			return outcome{}, err
		}
		if _, err := r.move(r.a, nil); err != nil { // lost
			return outcome{}, err
		}
	}
	if err := r.hand(victim, g.packet(victim, psn.Add(d))); err != nil {
		return outcome{}, err
	}
	if err := r.send(n - r.sent); err != nil {
		return outcome{}, err
	}
	if err := r.finish(); err != nil {
		return outcome{}, err
	}
	return r.judge(m), nil
}

// packet is the forged packet, with room for the ICRC.
func (g *Guess) packet(victim *qp.QP, psn rocev2.PSN) []byte {
	b := encode(g.op, victim.QPN(), psn, func(p *rocev2.Packet) {
		p.AETH.Syndrome = g.syndrome
		p.RETH = rocev2.RETH{VA: 1, RKey: 1, Length: messageLen}
		switch info, _ := g.op.Info(); {
		case g.read:
			p.Payload = bytes.Repeat([]byte{0xee}, rocev2.MTU1024.Bytes())
		case info.Payload != rocev2.PayloadNone:
			p.Payload = forged[:messageLen]
		}
	})
	return append(b, make([]byte, rocev2.ICRCLen)...)
}

// judge compares what the programs of both sides were told.
func (r *rig) judge(m *rigMemory) (o outcome) {
	o.ended = r.a.State() == qp.StateErr || r.b.State() == qp.StateErr
	genuine := 0
	for i := range r.bDone.ok {
		if binary.BigEndian.Uint64(m.b[i*messageLen:]) != uint64(i) {
			o.replaced = true
			break
		}
		genuine++
	}
	o.lied = r.aDone.ok > genuine
	return o
}

// tryRead is try for a requester with a READ outstanding.
func (g *Guess) tryRead(m *rigMemory, r *rig, d int) (outcome, error) {
	clear(m.a)
	for i := range m.b {
		m.b[i] = byte(i)*3 + byte(i>>10)
	}
	err := r.a.PostSend(r.now, &qp.SendWR{Opcode: qp.OpRead, Signaled: true,
		SGList: []memreg.SGE{{Addr: m.ra.Addr(), Length: rigRead, LKey: m.ra.LKey()}},
		Remote: qp.RemoteAddr{Addr: m.r.Addr(), RKey: m.r.RKey()}})
	if err != nil {
		return outcome{}, err
	}
	psn := r.a.Attr().SQPSN.Add(readHere)
	if _, err := r.move(r.a, r.b); err != nil {
		return outcome{}, err
	}
	for range readHere {
		n := r.b.PollTransmit(r.now, r.room)
		if err := r.hand(r.a, r.room[:n+rocev2.ICRCLen]); err != nil {
			return outcome{}, err
		}
	}
	if err := r.hand(r.a, g.packet(r.a, psn.Add(d))); err != nil {
		return outcome{}, err
	}
	if err := r.finish(); err != nil {
		return outcome{}, err
	}
	return outcome{
		ended:    r.a.State() == qp.StateErr,
		replaced: r.aDone.ok > 0 && !bytes.Equal(m.a[:rigRead], m.b[:rigRead]),
	}, nil
}
