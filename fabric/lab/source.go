package lab

import (
	"errors"
	"fmt"
	"iter"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/ib"
)

// FlowSpec is a flow that a Source starts.
type FlowSpec struct {
	Src, Dst int
	Bytes    int64 // 0: without an end, where the scenario has Until
	Start    Time  // not before now
	Op       string
	Class    string // as Tenant.Class; "": that of the traffic
	SrcPort  int    // 0: chosen from the connection

	// Done, if it is not nil, is called when the flow has come to its end,
	// at that time. It may call the Source.
	Done func(*Flow)
}

// Source starts the flows of a Traffic that a program makes: it knows the time,
// and sees what has completed. Its methods are called from Traffic.Source, and
// from what the Source calls, and nowhere else. What is wrong with a flow ends
// the run with an error.
type Source struct {
	r  *run
	tn *tenant
	t  *Traffic
}

// source has a program begin its flows at Start.
func (r *run) source(tn *tenant, t *Traffic) error {
	if t.Kind != kindSource && t.Kind != "" {
		return fmt.Errorf("kind is %q beside Source: leave it out", t.Kind)
	}
	s := &Source{r, tn, t}
	s.At(t.Start, func() { t.Source(s) })
	return nil
}

// kindSource is what the kind of a Traffic with a Source may be called.
const kindSource = "source"

// Now returns the time.
func (s *Source) Now() Time { return Time(s.r.net.Now()) }

// Hosts returns how many hosts the network has.
func (s *Source) Hosts() int { return int(s.r.g.Hosts()) }

// At has f called at a time, or now if it is over. While a call is to come the
// run goes on, if it has no Until.
func (s *Source) At(at Time, f func()) {
	s.r.more++
	s.r.net.At(event.Time(at), func() {
		s.r.more--
		f()
	})
}

// Start has a flow begin at its time.
func (s *Source) Start(k FlowSpec) {
	f, err := s.flow(&k)
	if err != nil {
		s.r.fail(0, err)
		return
	}
	if s.r.s.Until > 0 && f.Start >= s.r.s.Until {
		return // it would never begin
	}
	if f.Start <= s.Now() {
		if f.Bytes > 0 {
			s.r.open++
		}
		s.r.start(f)
		return
	}
	s.r.later(f)
}

// Play starts flows in the order of a sequence, which is their times' order. It
// asks for the next one when the one before has begun, so a sequence may be
// long.
func (s *Source) Play(flows iter.Seq[FlowSpec]) {
	next, stop := iter.Pull(flows)
	s.r.more++
	s.r.finally = append(s.r.finally, stop)
	s.r.next(func() *Flow {
		k, ok := next()
		if !ok {
			return nil
		}
		f, err := s.flow(&k)
		if err != nil {
			s.r.fail(0, err)
			return nil
		}
		return f
	})
}

// flow makes a flow.
func (s *Source) flow(k *FlowSpec) (*Flow, error) {
	wrong := func(err error) (*Flow, error) {
		return nil, fmt.Errorf("traffic %d: a flow from host %d to %d: %w", s.tn.traffic+1, k.Src, k.Dst, err)
	}
	op, err := oneOf("op", k.Op, operations, 0)
	if err != nil {
		return wrong(err)
	}
	hosts, port := s.Hosts(), uint16(k.SrcPort)
	switch {
	case k.Op != "" && s.tn.tcp != nil:
		return wrong(errOpOfTCP)
	case k.Src < 0 || k.Src >= hosts || k.Dst < 0 || k.Dst >= hosts || k.Src == k.Dst:
		return wrong(fmt.Errorf("there are 0 to %d, and they differ", hosts-1))
	case k.Bytes < 0 || k.Bytes > mostFlow:
		return wrong(fmt.Errorf("it has %d bytes: a flow has at most %v", k.Bytes, Bytes(mostFlow)))
	case k.Bytes == 0 && s.r.s.Until == 0:
		return wrong(errors.New("without bytes it goes on until the end: set Until"))
	case k.Start > mostTime:
		return wrong(fmt.Errorf("it starts at %v: at most %v", k.Start, mostTime))
	case k.SrcPort != 0 && (k.SrcPort < ib.MinSrcPort || k.SrcPort+s.tn.pairs > 1<<16):
		return wrong(fmt.Errorf("its port is %d: it is %d to 65535, for each queue pair the next", k.SrcPort, ib.MinSrcPort))
	}
	if err := s.r.ways.between(k.Src, k.Dst); err != nil {
		return wrong(err)
	}
	f := s.tn.flow(k.Src, k.Dst, k.Bytes, max(k.Start, s.Now()), op)
	if f.port = port; k.Class != "" {
		dscp, err := s.r.s.Network.dscpOf(k.Class)
		if err != nil {
			return wrong(err)
		}
		f.inClass(s.r, uint8(dscp))
	}
	if k.Done != nil {
		f.ended = func() { k.Done(f) }
	}
	return f, nil
}

// alone reports whether the network has to be one part: because something is
// called that sees all of it.
func (s *Scenario) alone() bool {
	if s.Trace != nil || s.Output.Capture.Ports != "" {
		return true
	}
	for i := range s.Traffic {
		if t := &s.Traffic[i]; t.Source != nil || t.Format == "htsim" { // it may have triggers
			return true
		}
	}
	return false
}
