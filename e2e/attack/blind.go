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
// extrapolated from the PSNs tried to the space of 2^24, for one known QPN; an
// attacker who does not know it either needs 2^24 / number of queue pairs times
// as many.
type BlindResult struct {
	Name     string  `json:"name"`
	What     string  `json:"what"`
	Tried    int     `json:"tried"`    // PSNs tried, each on a connection of its own
	Ends     float64 `json:"ends"`     // PSNs of 2^24 with which the connection ends
	Replaces float64 `json:"replaces"` // with which the program gets what its peer has not sent
	Lies     float64 `json:"lies"`     // with which a request completes with SUCCESS that the peer has not executed
	Hits     float64 `json:"hits"`     // with any of these
	Run      int     `json:"run"`      // longest row of them
	MSNs     float64 `json:"msns"`     // MSNs of 2^24 that such a packet may carry; all others make it harmless
	Random   float64 `json:"random"`   // packets until a hit with random numbers, on average; 0: there is none
	Sweep    float64 `json:"sweep"`    // the same with PSNs that lie Run apart
	Young    float64 `json:"young"`    // the same as Sweep where the MSN is known: of a connection that has done little
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

// space is how many PSNs there are, and MSNs.
const space = 1 << 24

// survey tries distances from the number that the victim expects: every one
// near it, one in the middle of every step up to reach, and far random others.
type survey struct {
	step, far int
	rng       *rand.Rand
	try       func(distance int) (outcome, error)

	tried, run, longest  int // run is of distances with an effect, up to here
	hits                 float64
	ends, replaces, lies float64
}

func (s *survey) do(near int) error {
	const reach = 9000
	for d := -near; d <= near; d++ {
		if err := s.at(d, 1); err != nil {
			return err
		}
	}
	for d := near + 1 + s.step/2; d < reach; d += s.step {
		if err := s.at(d, float64(s.step)); err != nil {
			return err
		}
	}
	rest := space - reach - near
	for range s.far {
		s.run = 0
		if err := s.at(reach+s.rng.IntN(rest), float64(rest)/float64(s.far)); err != nil {
			return err
		}
	}
	return nil
}

// at tries one distance, which stands for weight distances.
func (s *survey) at(d int, weight float64) error {
	o, err := s.try(d)
	if err != nil {
		return fmt.Errorf("at distance %d: %w", d, err)
	}
	s.tried++
	if o == (outcome{}) {
		s.run = 0
		return nil
	}
	s.run += int(weight)
	s.longest = max(s.longest, s.run)
	s.hits += weight
	for _, x := range []struct {
		yes bool
		sum *float64
	}{{o.ended, &s.ends}, {o.replaced, &s.replaces}, {o.lied, &s.lies}} {
		if x.yes {
			*x.sum += weight
		}
	}
	return nil
}

// Blind tries the guess with PSNs, and at one that hits with MSNs: step far
// from the expected one, and far random ones of the rest.
func (g *Guess) Blind(seed uint64, step, far int) (BlindResult, error) {
	r := BlindResult{Name: g.Name, What: g.What, MSNs: space}
	m, err := newRigMemory(rand.New(rand.NewPCG(seed, 2)))
	if err != nil {
		return r, err
	}
	near, most := 150, float64(g.Most)
	if g.InFlight > near {
		near, far = 8, max(far/10, 1) // for each costs as many messages
		most += float64(step) / 2     // what a sample may be wrong
	}
	s := survey{step: step, far: far, rng: rand.New(rand.NewPCG(seed, 3))}
	s.try = func(d int) (outcome, error) { return g.try(m, d, 0) }
	if err := s.do(near); err != nil {
		return r, fmt.Errorf("attack: guess %s: PSN %w", g.Name, err)
	}
	r.Tried, r.Ends, r.Replaces, r.Lies, r.Hits, r.Run = s.tried, s.ends, s.replaces, s.lies, s.hits, s.longest
	if r.Hits > most {
		r.Broken = fmt.Sprintf("%.0f PSNs have an effect, more than %d", r.Hits, g.Most)
	}
	if info, _ := g.op.Info(); r.Hits > 0 && info.Headers.Has(rocev2.HasAETH) {
		n := survey{step: step, far: far, rng: s.rng}
		n.try = func(d int) (outcome, error) { return g.try(m, 1, d) }
		if err := n.do(near); err != nil {
			return r, fmt.Errorf("attack: guess %s: MSN %w", g.Name, err)
		}
		r.Tried += n.tried
		r.MSNs = min(n.hits, space)
	}
	if r.Hits > 0 && r.MSNs > 0 {
		r.Young = space / float64(r.Run) / 2
		r.Sweep = r.Young * space / r.MSNs
		r.Random = space / r.Hits * space / r.MSNs
	}
	return r, nil
}

// outcome is what a forged packet did to a connection.
type outcome struct{ ended, replaced, lied bool }

// follow is how many messages follow those that reach the forged PSN.
const follow = 12

// maxReach is how far ahead messages follow a guess. What lies further away
// must show its effect without.
const maxReach = 10_000

// try makes a connection, forges a packet d PSNs from the expected one, whose
// MSN is so far from the true one, and lets the connection go on.
func (g *Guess) try(m *rigMemory, d, msn int) (outcome, error) {
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
	const first = 4 // messages, so that there are PSNs before the expected one
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
	if err := r.hand(victim, g.packet(victim, psn.Add(d), rocev2.PSN(first).Add(msn))); err != nil {
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
func (g *Guess) packet(victim *qp.QP, psn, msn rocev2.PSN) []byte {
	b := encode(g.op, victim.QPN(), psn, func(p *rocev2.Packet) {
		p.AETH = rocev2.AETH{Syndrome: g.syndrome, MSN: msn}
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
	o.ended = r.a.State() == ib.StateErr || r.b.State() == ib.StateErr
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
	err := r.a.PostSend(&ib.SendWR{Opcode: ib.OpRead, Signaled: true,
		SGList: []ib.SGE{{Addr: m.ra.Addr(), Length: rigRead, LKey: m.ra.LKey()}},
		Remote: ib.RemoteAddr{Addr: m.r.Addr(), RKey: m.r.RKey()}})
	if err != nil {
		return outcome{}, err
	}
	psn := r.a.Attr().SQPSN.Add(readHere)
	if _, err := r.move(r.a, r.b); err != nil {
		return outcome{}, err
	}
	for range readHere {
		n := r.poll(r.b)
		if err := r.hand(r.a, r.room[:n+rocev2.ICRCLen]); err != nil {
			return outcome{}, err
		}
	}
	if err := r.hand(r.a, g.packet(r.a, psn.Add(d), 0)); err != nil {
		return outcome{}, err
	}
	if err := r.finish(); err != nil {
		return outcome{}, err
	}
	return outcome{
		ended:    r.a.State() == ib.StateErr,
		replaced: r.aDone.ok > 0 && !bytes.Equal(m.a[:rigRead], m.b[:rigRead]),
	}, nil
}
