package stage

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// Scene is what a script acts on: this side of one queue pair of the target.
// The first thing that goes wrong ends it: every later call does nothing, and
// returns nothing. So scripts need no error handling, but no loop of theirs may
// depend on what a call returns.
type Scene struct {
	ctx    context.Context
	times  Times
	wire   *wire
	maker  Maker
	conn   *Conn // nil if the maker is none
	target Target
	qpn    rocev2.QPN // of this side
	opt    Options
	pair   Pair
	psn    rocev2.PSN // that the next request gets
	msn    rocev2.PSN // messages that the target has completed
	record *Record
	over   bool
	came   time.Time // when the packet that was looked at last came
}

// Fail ends the scene: the peer broke the rule.
func (s *Scene) Fail(expected, came string) {
	if !s.over {
		s.over = true
		s.record.Verdict, s.record.Expected, s.record.Came = Fail, expected, came
	}
}

// Untested ends the scene for a reason that says nothing of the peer.
func (s *Scene) Untested(err error) {
	if !s.over && err != nil {
		s.over = true
		s.record.Verdict, s.record.Why = NotTested, err.Error()
	}
}

// Connect has the target make a queue pair.
func (s *Scene) Connect(o Options) {
	if s.over {
		return
	}
	o.fill()
	if o.MTU > s.target.MTU {
		s.Untested(fmt.Errorf("the target's path MTU is %d bytes", s.target.MTU))
		return
	}
	var err error
	s.pair, o.PSN, err = s.maker.make(s, o)
	s.opt, s.psn = o, o.PSN
	s.Untested(err)
}

// Over reports whether the scene has ended.
func (s *Scene) Over() bool { return s.over }

// PSN returns the PSN that the next request gets.
func (s *Scene) PSN() rocev2.PSN { return s.psn }

// SetPSN has the next request get another PSN.
func (s *Scene) SetPSN(p rocev2.PSN) { s.psn = p }

// MSN returns how many messages the target has completed.
func (s *Scene) MSN() rocev2.PSN { return s.msn }

// SetMSN says how many messages the target has completed.
func (s *Scene) SetMSN(n rocev2.PSN) { s.msn = n }

// Pair returns what the target has made.
func (s *Scene) Pair() Pair { return s.pair }

// Options returns what it was made with, defaults included.
func (s *Scene) Options() Options { return s.opt }

// Target returns what the target says of itself.
func (s *Scene) Target() Target { return s.target }

// Times returns how long is waited.
func (s *Scene) Times() Times { return s.times }

// Came returns when the packet came that was returned last.
func (s *Scene) Came() time.Time { return s.came }

// Link returns the link that packets are sent from.
func (s *Scene) Link() transport.Link { return s.wire.link }

// Path returns a path to the peer like p.
func (s *Scene) Path(p transport.Path) *transport.Path {
	p.Dst = s.wire.peer
	return transport.NewPath(s.wire.link.Addr(), p)
}

// Request returns the next request: it has the next PSN, and names the first
// bytes of the target's memory where its opcode has a place for that.
func (s *Scene) Request(op rocev2.Opcode, payload []byte) *rocev2.Packet {
	info, _ := op.Info()
	if s.conn == nil && info.Operation == rocev2.OpWrite {
		payload = nil
	}
	p := &rocev2.Packet{Payload: payload}
	p.BTH = rocev2.BTH{Opcode: op, MigReq: true, PKey: rocev2.DefaultPKey, DestQPN: s.pair.QPN, PSN: s.psn, AckReq: info.Last && info.Service == rocev2.ServiceRC}
	p.RETH = rocev2.RETH{VA: s.pair.VA, RKey: s.pair.RKey, Length: uint32(len(payload))}
	p.AtomicETH = rocev2.AtomicETH{VA: s.pair.VA, RKey: s.pair.RKey}
	p.DETH = rocev2.DETH{QKey: s.opt.QKey, SrcQPN: s.qpn}
	s.psn = s.psn.Next()
	return p
}

// Kind has the opcodes of a kind of message.
type Kind struct{ First, Middle, Last, Only rocev2.Opcode }

// The kinds of messages of several packets.
var (
	Sends    = Kind{rocev2.RCSendFirst, rocev2.RCSendMiddle, rocev2.RCSendLast, rocev2.RCSendOnly}
	Writes   = Kind{rocev2.RCWriteFirst, rocev2.RCWriteMiddle, rocev2.RCWriteLast, rocev2.RCWriteOnly}
	UCSends  = Kind{rocev2.UCSendFirst, rocev2.UCSendMiddle, rocev2.UCSendLast, rocev2.UCSendOnly}
	UCWrites = Kind{rocev2.UCWriteFirst, rocev2.UCWriteMiddle, rocev2.UCWriteLast, rocev2.UCWriteOnly}
)

// Message returns the packets of a message.
func (s *Scene) Message(k Kind, data []byte) []*rocev2.Packet {
	if s.conn == nil {
		data = nil
	}
	var all []*rocev2.Packet
	mtu := max(s.opt.MTU, MTU)
	for off := 0; ; off += mtu {
		end := min(off+mtu, len(data))
		op := k.Middle
		switch {
		case off == 0 && end == len(data):
			op = k.Only
		case off == 0:
			op = k.First
		case end == len(data):
			op = k.Last
		}
		p := s.Request(op, data[off:end])
		p.RETH.Length = uint32(len(data))
		all = append(all, p)
		if end == len(data) {
			return all
		}
	}
}

// Send sends packets.
func (s *Scene) Send(all ...*rocev2.Packet) {
	for _, p := range all {
		s.Emit(p.AppendTo(nil), Describe(p), 0, nil)
	}
}

// Emit sends the bytes of a packet, without its ICRC.
func (s *Scene) Emit(b []byte, what string, damage uint32, path *transport.Path) {
	if s.over {
		return
	}
	s.record.Sent = what
	s.record.step("sent      %s", what)
	if err := s.wire.send(b, damage, path); err != nil {
		s.Untested(fmt.Errorf("send: %w", err))
	}
}

// Data returns n bytes that are unlike those at other places.
func Data(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + seed + 1)
	}
	return b
}

// Want is a packet that must come. Fits returns "" for it, Another for one of
// another kind, and otherwise what is wrong with it.
type Want struct {
	Text string
	Fits func(*rocev2.Packet) string
}

// Another is what Fits returns for a packet that is not meant at all.
const Another = "another packet"

// Next waits for the next packet. The form of each is checked.
func (s *Scene) Next(wait time.Duration) *rocev2.Packet {
	if s.over {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case a := <-s.wire.in:
			var p rocev2.Packet
			wrong := flaw(&a, &p)
			if wrong == "" && p.BTH.Opcode == rocev2.CNP {
				continue // congestion is no matter here
			}
			what := Describe(&p)
			if wrong != "" {
				what = fmt.Sprintf("%.64x (%s)", a.data, wrong)
			}
			s.record.step("came      %s", what)
			if wrong != "" {
				s.Fail("packets that are well formed", what)
				return nil
			}
			s.came = a.at
			return &p
		case <-timer.C:
			return nil
		case <-s.ctx.Done():
			s.Untested(context.Cause(s.ctx))
			return nil
		}
	}
}

// Expect waits for the packet that the rule wants, and no other comes before.
// Acknowledgements of PSNs before skipTo are no news, and are let through.
func (s *Scene) Expect(w Want, skipTo ...rocev2.PSN) *rocev2.Packet {
	if s.over {
		return nil
	}
	s.record.step("expected  %s", w.Text)
	const most = 64 // acknowledgements that are no news
	for range most {
		p := s.Next(s.times.Answer)
		if s.over {
			return nil
		}
		if p == nil {
			s.Fail(w.Text, s.Nothing())
			return nil
		}
		if len(skipTo) > 0 && s.isEarlier(p, skipTo[0]) {
			continue
		}
		if wrong := w.Fits(p); wrong != "" {
			s.Fail(w.Text, Describe(p)+inBrackets(wrong))
			return nil
		}
		return p
	}
	s.Fail(w.Text, "acknowledgements of earlier requests without end")
	return nil
}

// isEarlier reports whether p acknowledges a request of this scene before psn.
func (s *Scene) isEarlier(p *rocev2.Packet, psn rocev2.PSN) bool {
	return p.BTH.Opcode == rocev2.RCAcknowledge && p.AETH.Syndrome.IsACK() && p.BTH.PSN.Before(psn) && !p.BTH.PSN.Before(s.opt.PSN)
}

// inBrackets adds what is wrong with a packet to what it is.
func inBrackets(reason string) string {
	if reason == Another {
		return ""
	}
	return " (" + reason + ")"
}

// Nothing says that nothing came.
func (s *Scene) Nothing() string { return fmt.Sprintf("nothing within %v", s.times.Answer) }

// Quiet waits for the time of a scene that must stay silent.
func (s *Scene) Quiet(why string) {
	if s.over {
		return
	}
	s.record.step("expected  nothing: %s", why)
	if p := s.Next(s.times.Quiet); p != nil {
		s.Fail("no packet: "+why, Describe(p))
	}
}

// ACK is an acknowledgement with this PSN and message count.
func ACK(psn, msn rocev2.PSN) Want {
	return Want{Text: fmt.Sprintf("ACK psn=%#x msn=%d", uint32(psn), msn), Fits: func(p *rocev2.Packet) string {
		switch {
		case p.BTH.Opcode != rocev2.RCAcknowledge || !p.AETH.Syndrome.IsACK() || p.BTH.PSN != psn:
			return Another
		case p.AETH.MSN != msn:
			return fmt.Sprintf("its MSN is not %d", msn)
		}
		return ""
	}}
}

// WantAck waits for the acknowledgement of the latest request, which completes
// n messages.
func (s *Scene) WantAck(n int) {
	s.msn = s.msn.Add(n)
	last := s.psn.Add(-1)
	s.Expect(ACK(last, s.msn), last)
}

// NAK is a negative acknowledgement with one of these syndromes.
func NAK(psn rocev2.PSN, codes ...rocev2.Syndrome) Want {
	text := ""
	for i, c := range codes {
		if i > 0 {
			text += ", or "
		}
		text += describeSyndrome(c)
	}
	return Want{Text: fmt.Sprintf("%s psn=%#x", text, uint32(psn)), Fits: func(p *rocev2.Packet) string {
		if p.BTH.Opcode != rocev2.RCAcknowledge || p.BTH.PSN != psn {
			return Another
		}
		if slices.Contains(codes, p.AETH.Syndrome) {
			return ""
		}
		return Another
	}}
}

// WantNAK waits for a NAK of the request with the PSN.
func (s *Scene) WantNAK(psn rocev2.PSN, codes ...rocev2.Syndrome) *rocev2.Packet {
	return s.Expect(NAK(psn, codes...), psn)
}
