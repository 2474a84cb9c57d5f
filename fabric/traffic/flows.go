package traffic

import (
	"fmt"
	"math"
	"math/bits"
)

// Flow is a message that one host has for another from some time on.
type Flow struct {
	At    int64 // picoseconds
	Bytes int64
	Src   int32
	Dst   int32
}

// Stream is a row of flows in the order of their times.
type Stream interface {
	// Next returns the next flow, and false when there is none.
	Next() (Flow, bool)
}

// Load describes flows that arrive as a Poisson process. Each goes from a
// random host to a random other one.
type Load struct {
	Hosts int
	Sizes *Sizes
	// Rate is the rate of a host's link in bits per second, and Load how
	// much of it the flows ask for, in parts of a million: on average each
	// host sends at Rate*Load/10^6. Headers are not counted.
	Rate int64
	Load int
	// Until is when the arrivals end, in picoseconds.
	Until int64
}

// Stream returns the flows. The error says what is out of range.
func (l Load) Stream(r Source) (Stream, error) {
	if l.Sizes == nil {
		return nil, fmt.Errorf("traffic: a load without sizes")
	}
	p, err := newProcess(l.Hosts, l.Rate, l.Load, l.Sizes.Mean(), l.Until)
	if err != nil {
		return nil, err
	}
	return &loadStream{process: p, r: r, sizes: l.Sizes}, nil
}

type loadStream struct {
	process
	r     Source
	sizes *Sizes
}

func (s *loadStream) Next() (Flow, bool) {
	if !s.advance(s.r) {
		return Flow{}, false
	}
	src, dst := twoOf(s.r, s.hosts)
	return Flow{At: s.now, Bytes: s.sizes.Draw(s.r), Src: src, Dst: dst}, true
}

// twoOf returns two hosts that differ.
func twoOf(r Source, hosts int) (src, dst int32) {
	src = int32(below(r, hosts))
	dst = int32(below(r, hosts-1))
	if dst >= src {
		dst++
	}
	return src, dst
}

// Bursts describes incasts that arrive as a Poisson process: each has random
// senders and a random receiver. The HPCC paper (SIGCOMM 2019) has 60 senders
// of 500 KB each, at 2 % of the network's capacity.
type Bursts struct {
	Hosts   int
	Senders int
	Bytes   int64 // of each sender
	Rate    int64 // of a host's link, in bits per second
	Load    int   // of all hosts' rates together, in parts of a million
	Until   int64 // picoseconds
}

// Stream returns the flows. Those of a burst have one time. The error says what
// is out of range.
func (b Bursts) Stream(r Source) (Stream, error) {
	if err := checkHosts(b.Hosts); err != nil {
		return nil, err
	}
	if b.Senders < 1 || b.Senders >= b.Hosts || b.Bytes < 1 || b.Bytes > maxBytes {
		return nil, fmt.Errorf("traffic: bursts of %d senders of %d bytes to one of %d hosts; it takes 1 to hosts-1 senders and 1 to %d bytes",
			b.Senders, b.Bytes, b.Hosts, int64(maxBytes))
	}
	p, err := newProcess(b.Hosts, b.Rate, b.Load, int64(b.Senders)*b.Bytes, b.Until)
	if err != nil {
		return nil, err
	}
	s := &burstStream{process: p, r: r, bytes: b.Bytes, order: make([]int32, b.Hosts), taken: b.Senders + 1}
	for i := range s.order {
		s.order[i] = int32(i)
	}
	s.at = s.taken
	return s, nil
}

type burstStream struct {
	process
	r     Source
	bytes int64
	order []int32 // the receiver of this burst, its senders, then all others
	taken int     // the receiver and the senders
	at    int     // the next sender
}

func (s *burstStream) Next() (Flow, bool) {
	if s.at == s.taken {
		if !s.advance(s.r) {
			return Flow{}, false
		}
		for i := range s.taken {
			j := i + below(s.r, s.hosts-i)
			s.order[i], s.order[j] = s.order[j], s.order[i]
		}
		s.at = 1
	}
	s.at++
	return Flow{At: s.now, Bytes: s.bytes, Src: s.order[s.at-1], Dst: s.order[0]}, true
}

// process is a Poisson process: the times between arrivals are independent and
// have the exponential distribution.
type process struct {
	hosts int
	gap   uint64 // mean time between arrivals, in units of 2^-16 ps
	now   int64
	part  uint64 // what now lacks, in the same units
	until int64
}

// maxHosts is more than a simulated network has.
const maxHosts = 1 << 20

func checkHosts(n int) error {
	if n < 2 || n > maxHosts {
		return fmt.Errorf("traffic: flows between %d hosts; it takes 2 to %d", n, maxHosts)
	}
	return nil
}

func newProcess(hosts int, rate int64, load int, bytes, until int64) (process, error) {
	if err := checkHosts(hosts); err != nil {
		return process{}, err
	}
	switch {
	case rate < 1 || rate > 1e14:
		return process{}, fmt.Errorf("traffic: hosts of %d bit/s; it takes 1 to 10^14", rate)
	case load < 1 || load > 1_000_000_000:
		return process{}, fmt.Errorf("traffic: a load of %d of 10^6; it takes 1 to 10^9", load)
	case until < 0 || until > math.MaxInt64/2:
		return process{}, fmt.Errorf("traffic: arrivals until %d ps", until)
	case bytes > maxBytes:
		return process{}, fmt.Errorf("traffic: %d bytes at a time; at most %d", bytes, int64(maxBytes))
	}
	// gap = bytes * 8 * 10^6 * 10^12 ps * 2^16 / (hosts * rate * load)
	num := mul128(uint64(bytes)*8_000_000, 1_000_000_000_000<<16)
	gap, ok := num.over(mul128(uint64(rate), uint64(load)*uint64(hosts)))
	if !ok || gap < 1<<16 { // 64 bits of 2^-16 ps are 281 s
		return process{}, fmt.Errorf("traffic: %d bytes at a time at %d of 10^6 of %d hosts of %d bit/s: the mean time between arrivals is not within 1 ps and 281 s", bytes, load, hosts, rate)
	}
	return process{hosts: hosts, gap: gap, until: until}, nil
}

// advance goes to the next arrival and reports whether there is one.
func (p *process) advance(r Source) bool {
	if p.now >= p.until {
		return false
	}
	hi, lo := bits.Mul64(p.gap, exponential(r)) // in units of 2^-48 ps
	p.part += lo >> 32 & 0xffff
	step := hi<<16 | lo>>48
	p.now += int64(step + p.part>>16)
	p.part &= 0xffff
	if p.now >= p.until {
		p.now = p.until
		return false
	}
	return true
}

// u128 is an unsigned number of 128 bits.
type u128 struct{ hi, lo uint64 }

func mul128(a, b uint64) u128 {
	hi, lo := bits.Mul64(a, b)
	return u128{hi, lo}
}

// over returns the quotient, and false if it does not fit 64 bits. Both are
// made smaller alike until the divisor fits 64 bits, which costs at most one
// part in 2^32 here.
func (a u128) over(b u128) (uint64, bool) {
	for b.hi != 0 {
		a = u128{a.hi >> 1, a.lo>>1 | a.hi<<63}
		b = u128{b.hi >> 1, b.lo>>1 | b.hi<<63}
	}
	if b.lo == 0 || a.hi >= b.lo {
		return 0, false
	}
	q, _ := bits.Div64(a.hi, a.lo, b.lo)
	return q, true
}

// Merge returns the flows of several streams by time. Of flows at one time
// those of the first stream come first.
func Merge(streams ...Stream) Stream {
	m := &merged{}
	for _, s := range streams {
		if f, ok := s.Next(); ok {
			m.heads = append(m.heads, head{f, s})
		}
	}
	return m
}

type head struct {
	flow   Flow
	stream Stream
}

type merged struct{ heads []head }

func (m *merged) Next() (Flow, bool) {
	if len(m.heads) == 0 {
		return Flow{}, false
	}
	first := 0
	for i, h := range m.heads {
		if h.flow.At < m.heads[first].flow.At {
			first = i
		}
	}
	f := m.heads[first].flow
	next, ok := m.heads[first].stream.Next()
	if ok {
		m.heads[first].flow = next
	} else {
		m.heads = append(m.heads[:first], m.heads[first+1:]...)
	}
	return f, true
}
