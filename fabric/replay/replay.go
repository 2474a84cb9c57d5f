package replay

import (
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/observe/dissect"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Bounds of what is taken from a capture, which may be of any length.
const (
	mostFlows   = 1 << 16
	mostHosts   = 1 << 12
	mostLosses  = 1 << 18 // and as many marks
	mostMissing = 1 << 16 // at once
	longGap     = 1 << 14 // PSNs: more is no loss but another beginning
	longFlow    = 1 << 21 // packets, then another flow begins
)

// Idle is how long nothing was sent on a connection before what follows is
// another flow, which begins when it did.
const Idle = time.Millisecond

// stream is data that one queue pair sends to another one.
type stream struct {
	src, dst netip.Addr
	qpn      rocev2.QPN // that it goes to
	read     bool       // they are answers to READs
}

// pair is two hosts, the one that sends first.
type pair struct{ from, to netip.Addr }

// flow is data of a stream, without a pause.
type flow struct {
	from, to int // hosts: of a READ from is the one that asks
	op       string
	start    time.Duration
	packets  int   // PSNs so far
	last     int   // bytes of the last of them
	lost     []int // packets that were missing, and came again
	again    []int // packets that have gone again, those in front of which none had
	marks    []int
	gaps     bool
	trims    bool // some were trimmed
}

// state is what is known of a stream.
type state struct {
	*flow
	next      rocev2.PSN
	at        time.Duration                // of its last packet
	missing   map[rocev2.PSN]time.Duration // since when
	repeated  map[rocev2.PSN]bool
	lastAgain rocev2.PSN
	repeats   bool // that was the packet before
}

// Replay takes the packets of a capture.
type Replay struct {
	hosts   map[netip.Addr]int
	list    []netip.Addr
	streams map[stream]*state
	flows   []*flow
	rates   map[pair]*meter
	rtts    map[pair]time.Duration // the least round trip of what a host asks another one
	told    map[pair]time.Duration // when a host has last told another one of packets that it misses

	mtu             int
	rate            int64 // bits per second, the highest
	native          bool  // selective acknowledgements of this software were seen
	ecn             bool  // data can be marked
	losses, marks   int
	missing         int // in all streams
	others, leftOut uint64
	unclear         int // gaps that nothing has closed
	packets         uint64
}

// New returns a Replay without a packet.
func New() *Replay {
	return &Replay{hosts: map[netip.Addr]int{}, streams: map[stream]*state{}, rates: map[pair]*meter{}, rtts: map[pair]time.Duration{}, told: map[pair]time.Duration{}}
}

// Add takes a packet of a capture, in its order.
func (r *Replay) Add(p *dissect.Packet) {
	if !p.HasBTH || p.Err != nil || p.ICRC == dissect.ICRCBad {
		return
	}
	r.packets++
	if p.Timed {
		r.roundTrip(pair{p.IP.Dst, p.IP.Src}, p.RTT)
	}
	if p.Wire.BTH.Opcode == rocev2.SelectiveAck {
		r.native = true
		r.tells(p)
		return
	}
	s := stream{src: p.IP.Src, dst: p.IP.Dst, qpn: p.Wire.BTH.DestQPN}
	op := ""
	switch info := p.Info(); {
	case info.Service == rocev2.ServiceCNP:
		return
	case info.Service != rocev2.ServiceRC:
		r.others++
		return
	case info.Operation == rocev2.OpWrite:
		op = "write"
	case info.Operation == rocev2.OpSend:
		op = "send"
	case info.Operation == rocev2.OpReadResponse:
		op, s.read = "read", true
	case info.Operation == rocev2.OpReadRequest:
		return
	case info.Operation == rocev2.OpAcknowledge:
		if p.Wire.AETH.Syndrome == rocev2.NAKSequence {
			r.tells(p)
		}
		return
	default:
		r.others++
		return
	}
	r.measure(p)
	r.mtu = max(r.mtu, p.PayloadLen)
	r.ecn = r.ecn || p.IP.ECN() != 0
	r.data(s, op, p)
}

// data takes a packet with data of a stream.
func (r *Replay) data(key stream, op string, p *dissect.Packet) {
	psn := p.Wire.BTH.PSN
	s := r.streams[key]
	d := 0
	if s != nil {
		d = psn.Sub(s.next)
	}
	fresh := s == nil || d >= 0
	switch {
	case s == nil, d > longGap, d < -longGap:
		s = r.begin(key, op, p)
	case fresh && (op != s.op || s.packets >= longFlow || d == 0 && p.Info().First && len(s.missing) == 0 && p.Offset-s.at >= Idle):
		s = r.begin(key, op, p)
	case !fresh:
		r.repeat(s, p)
		s.at = p.Offset
		return
	}
	if s == nil {
		r.leftOut++
		return
	}
	if p.Trimmed && len(s.repeated) < mostMissing {
		s.gaps, s.trims = true, true
		s.lost = r.lose(s.lost, s.packets+psn.Sub(s.next))
		s.repeated[psn] = true // it goes again for that
	}
	for q := s.next; q != psn; q = q.Next() {
		s.gaps = true
		if r.missing == mostMissing {
			r.unclear++
			continue
		}
		r.missing++
		s.missing[q] = p.Offset
	}
	s.packets += psn.Sub(s.next) + 1
	s.at, s.next, s.last, s.repeats = p.Offset, psn.Next(), p.PayloadLen, false
	r.mark(s, p)
}

// begin begins a flow of a stream with a packet. It returns nil if there are
// too many.
func (r *Replay) begin(key stream, op string, p *dissect.Packet) *state {
	if len(r.flows) == mostFlows {
		return nil
	}
	from, ok := r.host(key.src)
	to, ok2 := r.host(key.dst)
	if !ok || !ok2 || from == to {
		return nil
	}
	if key.read {
		from, to = to, from
	}
	s := r.streams[key]
	if s == nil {
		s = &state{missing: map[rocev2.PSN]time.Duration{}, repeated: map[rocev2.PSN]bool{}}
		r.streams[key] = s
	}
	r.missing -= len(s.missing)
	r.unclear += len(s.missing)
	clear(s.missing)
	clear(s.repeated)
	psn := p.Wire.BTH.PSN
	s.next, s.repeats = psn, false
	s.flow = &flow{from: from, to: to, op: op, start: max(p.Offset, 0)}
	r.flows = append(r.flows, s.flow)
	return s
}

// host returns the number of an address.
func (r *Replay) host(a netip.Addr) (n int, ok bool) {
	n, ok = r.hosts[a]
	if !ok && len(r.list) < mostHosts {
		n, ok = len(r.list), true
		r.hosts[a] = n
		r.list = append(r.list, a)
	}
	return n, ok
}

// repeat takes a packet whose PSN was passed before: one that comes late, or
// again.
func (r *Replay) repeat(s *state, p *dissect.Packet) {
	psn := p.Wire.BTH.PSN
	i := s.packets + psn.Sub(s.next)
	if i < 0 {
		return // of the flow before
	}
	if since, ok := s.missing[psn]; ok {
		delete(s.missing, psn)
		r.missing--
		if p.Trimmed {
			s.lost = r.lose(s.lost, i)
			s.repeated[psn] = true
			return
		}
		told := s.op == "read" || r.told[pair{p.IP.Dst, p.IP.Src}] >= since
		// Headers of trimmed packets overtake others, which are then
		// asked for, and come.
		if told && !s.trims || p.Offset-since >= Idle {
			s.lost = r.lose(s.lost, i)
		}
		return
	}
	if s.repeated[psn] || p.Flags&dissect.Duplicate != 0 || len(s.repeated) == mostMissing {
		return
	}
	s.repeated[psn] = true
	if r.native || !s.repeats || psn != s.lastAgain.Next() {
		s.again = r.lose(s.again, i)
	}
	s.lastAgain, s.repeats = psn, true
}

// roundTrip takes the round trip of what a host has asked another one.
func (r *Replay) roundTrip(key pair, took time.Duration) {
	least, known := r.rtts[key]
	if known && took < least || !known && len(r.rtts) < mostFlows {
		r.rtts[key] = took
	}
}

// shortest returns the shortest round trip between two hosts that is longer
// than a time, 0 if there is none. Where both ask, each of them has the part of
// it that is beyond the place of the capture. A host that has answered at once
// is at that place: no answer of it is a round trip.
func (r *Replay) shortest(than time.Duration) (rtt time.Duration) {
	here := map[netip.Addr]bool{}
	for key, took := range r.rtts {
		if took <= than {
			here[key.to] = true
		}
	}
	for key, took := range r.rtts {
		if here[key.to] {
			continue
		}
		if !here[key.from] {
			took += r.rtts[pair{key.to, key.from}]
		}
		if rtt == 0 || took < rtt {
			rtt = took
		}
	}
	return rtt
}

// tells notes that a host has told another one of packets that it misses.
func (r *Replay) tells(p *dissect.Packet) {
	key := pair{p.IP.Src, p.IP.Dst}
	if _, known := r.told[key]; known || len(r.told) < mostFlows {
		r.told[key] = p.Offset
	}
}

// lose adds a packet to a list of those that were lost.
func (r *Replay) lose(list []int, i int) []int {
	if r.losses == mostLosses {
		r.leftOut++
		return list
	}
	r.losses++
	return append(list, i)
}

// mark notes that a packet has come marked.
func (r *Replay) mark(s *state, p *dissect.Packet) {
	if p.IP.ECN() != 3 {
		return
	}
	if r.marks == mostLosses {
		r.leftOut++
		return
	}
	r.marks++
	s.marks = append(s.marks, s.packets-1)
}

// meter measures how fast something is at most.
type meter struct {
	since time.Duration
	bytes int64
}

// perPacket is what a packet has on the wire around its BTH to ICRC: UDP, IPv4,
// Ethernet with its preamble and gap.
const (
	perPacket = 8 + 20 + 38
	meterSpan = 64 << 10 // bytes
)

// measure takes the bytes of a packet: of what its host sends, and of what
// comes to the other one, which may be from several.
func (r *Replay) measure(p *dissect.Packet) {
	r.meter(pair{from: p.IP.Src}, p)
	r.meter(pair{to: p.IP.Dst}, p)
}

func (r *Replay) meter(key pair, p *dissect.Packet) {
	m := r.rates[key]
	if m == nil {
		if len(r.rates) < 2*mostHosts {
			r.rates[key] = &meter{since: p.Offset}
		}
		return
	}
	m.bytes += int64(p.Length + perPacket)
	if m.bytes < meterSpan {
		return
	}
	if while := p.Offset - m.since; while > 0 {
		r.rate = max(r.rate, m.bytes*8*int64(time.Second)/int64(while))
	}
	*m = meter{since: p.Offset}
}
