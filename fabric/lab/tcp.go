package lab

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/tcp"
	"github.com/gosoftroce/rocev2/qp"
)

// TCP is how a Traffic goes with Transport "tcp": package tcp has what it does.
// Tenant.Window is the room of the receiver then, and Tenant.Control reno,
// dctcp or cubic.
type TCP struct {
	MSS           int  // bytes of a segment; 0: 1460
	InitialWindow int  `toml:"initial_window"` // segments; 0: 10
	MinRTO        Time `toml:"min_rto"`        // least retransmission timeout; 0: 1 s
	AckEvery      int  `toml:"ack_every"`      // segments for one acknowledgement; 0: 2
	AckDelay      Time `toml:"ack_delay"`      // how long one waits for more segments; 0: 40 ms, or half of MinRTO
	ECN           bool // with reno and cubic; dctcp has it
}

// Names that a Tenant may have.
var (
	transports  = []string{"roce", "tcp"}
	tcpControls = []string{tcp.Reno.String(), tcp.DCTCP.String(), tcp.CUBIC.String()}
)

// tcpDefault is the DSCP of TCP: best effort.
const tcpDefault = 0

// carried brings what a tenant says of its transport to what carries it. Of
// RoCE there is nothing.
func (c *connecting) carried(own *Tenant, t *tenant) error {
	transport, err := oneOf("transport", own.Transport, transports, 0)
	switch {
	case err != nil:
		return err
	case transport == 0 && own.TCP != TCP{}:
		return errors.New(`tcp says how transport = "tcp" works: set it, or take tcp out`)
	case transport == 0:
		return nil
	}
	for _, s := range []setting{
		{name: "recovery", set: own.Recovery != ""}, {name: "queue_pairs", set: own.QueuePairs != 0}, {name: "rate", set: own.Rate != 0},
	} {
		if s.set {
			return fmt.Errorf(`%s is a setting of queue pairs: transport = "tcp" has none`, s.name)
		}
	}
	control, err := oneOf(`control of transport = "tcp"`, own.Control, tcpControls, 0)
	if err != nil {
		return err
	}
	k := &own.TCP
	t.tcp = &tcp.Config{MSS: k.MSS, InitialWindow: k.InitialWindow, Window: int(own.Window), Control: tcp.Control(control), ECN: k.ECN,
		MinRTO: event.Time(k.MinRTO), AckEvery: k.AckEvery, AckDelay: event.Time(k.AckDelay), DSCP: tcpDefault}
	if own.DSCP > 0 {
		t.tcp.DSCP = uint8(own.DSCP)
	}
	if own.Class != "" {
		dscp, err := c.s.Network.dscpOf(own.Class)
		if err != nil {
			return err
		}
		t.tcp.DSCP = uint8(dscp)
	}
	t.conn.TrafficClass = t.tcp.DSCP << 2
	return k.check(int64(own.Window))
}

// check says what is wrong with numbers, by the names of settings.
func (k *TCP) check(window int64) error {
	const second = Time(event.Second)
	mss, least := orDefault(k.MSS, 1460), orDefault(k.MinRTO, second)
	switch {
	case mss < tcp.LeastMSS || mss > tcp.MostMSS:
		return fmt.Errorf("tcp.mss is %d: it is %d to %d", k.MSS, tcp.LeastMSS, tcp.MostMSS)
	case k.InitialWindow < 0 || k.InitialWindow > 1000:
		return fmt.Errorf("tcp.initial_window is %d: it is 1 to 1000 segments", k.InitialWindow)
	case window != 0 && window < 2*int64(mss):
		return fmt.Errorf("window is %v: that of a receiver of TCP is at least two segments, %v", Bytes(window), Bytes(2*mss))
	case k.MinRTO < 0 || least > 60*second:
		return fmt.Errorf("tcp.min_rto is %v: it is above 0, and at most 60s", exact(k.MinRTO))
	case k.AckEvery < 0 || k.AckEvery > tcp.MostAckFor:
		return fmt.Errorf("tcp.ack_every is %d: it is 1 to %d segments", k.AckEvery, tcp.MostAckFor)
	case k.AckDelay < 0 || k.AckDelay >= least:
		return fmt.Errorf("tcp.ack_delay is %v: it is above 0, and less than min_rto, %v, which else is over before an acknowledgement comes", k.AckDelay, least)
	}
	return nil
}

var errOpOfTCP = errors.New(`op is of queue pairs: transport = "tcp" has none`)

// refuse says what a tenant with TCP cannot carry.
func (t *tenant) refuse(k *Traffic) error {
	switch {
	case t.tcp == nil:
		return nil
	case k.Op != "":
		return errOpOfTCP
	case k.Kind == "chakra" || slices.Contains(collectives, k.Kind):
		return errors.New(`its messages need queue pairs: transport = "tcp" is for the kinds that are flows`)
	}
	return nil
}

// stack returns the TCP of the hosts, nil if no tenant has it.
func (all tenants) stack(r *run) *tcp.Stack {
	if slices.ContainsFunc(all, func(t *tenant) bool { return t.tcp != nil }) {
		return tcp.New(r.a, r.s.Seed)
	}
	return nil
}

// carry has a flow go by TCP, now.
func (f *Flow) carry(r *run) error {
	if r.told[f.number] != nil {
		return fmt.Errorf("[[loss]] and [[mark]] are for packets of queue pairs, and flow %d goes by TCP", f.number)
	}
	c := *f.tenant.tcp
	if c.SrcPort = f.port; f.class != 0 {
		c.DSCP = f.class - 1
	}
	calls := tcp.Calls{Acknowledged: func() {
		f.End = Time(r.net.TimeOf(f.Src))
		p := &r.parts[r.net.PartOf(f.Src)]
		p.over = append(p.over, f)
		if f.ended != nil {
			f.ended()
		}
	}}
	if f.arrived != nil {
		calls.Arrived = f.arrived
	}
	var err error
	if f.stream, err = r.tcp.Connect(f.Src, f.Dst, f.Bytes, c, calls); err != nil {
		return err
	}
	if f.Bytes == 0 {
		r.endless++
		return nil
	}
	r.reap()
	f.Ideal = f.idealTCP(r)
	return nil
}

// Bytes on the wire of the packets of TCP.
const (
	tcpHeaders = 20 + tcp.HeaderLen // with those of IP
	tcpSYN     = tcpHeaders + 12    // with its options
)

// idealTCP returns how long a flow takes alone: a handshake, all segments one
// after the other at the rate of the cables, without slow start, and the last
// acknowledgement.
func (f *Flow) idealTCP(r *run) Time {
	there, back := r.pathOf(f.Src, f.Dst), r.pathOf(f.Dst, f.Src)
	if len(there) == 0 || len(back) == 0 {
		return 0
	}
	opened := there.alone(network.WireSize(tcpSYN)) + back.alone(network.WireSize(tcpSYN))
	segments := there.train(f.Bytes, orDefault(f.tenant.tcp.MSS, 1460), func(n int, _ int64) int { return network.WireSize(tcpHeaders + n) })
	return opened + segments + back.alone(network.WireSize(tcpHeaders))
}

// sendingTCP returns how the sender of a flow stands.
func (f *Flow) sendingTCP() qp.Flow {
	s := f.stream.State()
	return qp.Flow{InFlight: int(s.InFlight), Window: int(s.Window), RTT: s.RTT.Duration()}
}

// waitsTCP says of a flow that has nothing in the network what its host waits
// for.
func (f *Flow) waitsTCP() string {
	s := f.stream.State()
	if s.Timeout == event.Never {
		return fmt.Sprintf("nothing of it is in the network: TCP of host %d has a window of %v, and no timeout runs", f.Src, Bytes(s.Window))
	}
	return fmt.Sprintf("nothing of it is in the network: TCP of host %d waits for its timeout at %v", f.Src, Time(s.Timeout))
}

// countersTCP returns the counters of a flow.
func (f *Flow) countersTCP() *Counters {
	s := f.stream.Stats()
	return &Counters{Retransmits: s.Retransmits, SpuriousRetransmits: s.Duplicates, Timeouts: s.Timeouts, Repairs: s.Recoveries,
		CNPs: s.Echoes, Marked: s.Marked, WindowCuts: s.Cuts + s.Recoveries + s.Timeouts, Reordered: s.Reordered}
}

// TCPSummary are counters of all connections of TCP.
type TCPSummary struct {
	Segments   uint64 `json:"segments_sent"`       // with bytes, SYN or FIN
	Again      uint64 `json:"segments_sent_again"` // of these
	Unneeded   uint64 `json:"segments_unneeded"`   // that came twice
	Acks       uint64 `json:"acknowledgements"`
	Recoveries uint64 `json:"fast_recoveries"`
	Timeouts   uint64 `json:"timeouts"`
	Marked     uint64 `json:"segments_marked"`
	Cuts       uint64 `json:"window_cuts"` // because of marks
	Bytes      uint64 `json:"bytes"`       // of payload that have come in order
}

func tcpSummary(s *tcp.Stats) *TCPSummary {
	if s == nil {
		return nil
	}
	return &TCPSummary{Segments: s.Segments, Again: s.Retransmits, Unneeded: s.Duplicates, Acks: s.Acks, Recoveries: s.Recoveries,
		Timeouts: s.Timeouts, Marked: s.Marked, Cuts: s.Cuts, Bytes: s.RxBytes}
}
