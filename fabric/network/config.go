package network

import (
	"errors"
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// Time is a point in virtual time in picoseconds.
type Time = event.Time

// Config describes a network. Hosts are nodes 0 to Hosts-1, and switch i is
// node Hosts+i. The ports of a node are numbered from 0, in the order in which
// Cables name the node.
type Config struct {
	Hosts    int // 1 to 65535
	Switches []Switch
	Cables   []Cable
	Tables   []Table // one for each switch
	MTU      int     // bytes on the wire of the largest packet; 0: DefaultMTU
	HostDSCP []uint8 // class of each DSCP as hosts see it, 64; nil: DSCP/8
	Seed     uint64
	Trail    int // hops that a packet has room for, 0 to MaxTrail: see View.Note

	HostProgram Program // at the ports of each host; nil: none

	// Reroute returns new tables after cables have changed. They are in
	// force when Converge has passed since the change. up says of each
	// cable whether it is up; it must not be changed or kept. Without
	// Reroute, or where it returns nil, the tables stay as they are.
	Reroute  func(up []bool) []Table
	Converge Time

	// Parts is into how many parts the network is divided, that can run at
	// the same time: 0 or 1 is not at all, 64 the most. What happens is the
	// same, see the documentation of the package. Parallel calls turn once
	// for each part, at the same time, and returns when all calls have; nil
	// calls one after the other. To do that in Parallel is right, too, but
	// slow: parts wait for each other for a while.
	Parts    int
	Parallel func(parts int, turn func(part int))
}

// Cable connects two nodes, both ways.
type Cable struct {
	A, B  int    // nodes
	Rate  int64  // bit/s
	Delay Time   // of one direction
	Loss  uint32 // of 1e9 packets, at random
	// Burst is how many packets are lost together, in the mean, with the
	// share Loss of all; 0: each is by itself.
	Burst uint32
	// BER is the rate of bits that are wrong, of 1e18. A packet with one is
	// dropped where it comes to, by its FCS; a cut-through switch sends it
	// on. Pauses come through.
	BER uint64
}

// Table says where a switch sends packets. Set has, for each host, an index in
// Sets. Sets are ports in any order; an empty one stands for no route.
type Table struct {
	Set  []uint16
	Sets [][]uint16
}

// Switch is what a switch is like, a plain value. The profiles of vendors are
// such values.
type Switch struct {
	Buffer     int64 // bytes on the wire, shared by all ports
	Classes    [NumClasses]Class
	Ports      [][NumClasses]Class // by port, where they differ; nil: Classes at each
	DSCP       []uint8             // class of each DSCP, 64; nil: DSCP/8
	CutThrough bool
	Routing    Routing
	Gap        Time // of Flowlet: a pause after which a flow may move
	Watchdog   WatchdogConfig
	Program    Program // has a say in what the switch does; nil: none
}

// Class is what a traffic class is like, at each port of a switch.
//
// The shared buffer is what reserves and headrooms leave. For each lossless
// class and port, one packet of the MTU is set aside, too. The threshold of an
// ingress port and class is 2^Alpha times the shared buffer that is free.
//
// Lossy: a packet is taken if what is stored of its ingress port and class is
// then not above Reserve + threshold.
//
// Lossless: XOFF is sent when what is stored has reached Reserve + threshold.
// The packet that reaches it is stored (that is what one packet is set aside
// for). What comes then goes into the headroom. XON is sent when the headroom
// is empty, and at most Reserve + threshold - XONOffset is stored, or Reserve.
//
// Where ports differ (Switch.Ports), what is said of ingress ports goes by the
// port that a packet comes in by, and so does Lossless; all else by the port
// that it leaves by.
type Class struct {
	Lossless  bool
	Reserve   int64 // bytes of each ingress port
	Headroom  int64 // bytes of each ingress port; 0: what func Headroom says
	Alpha     int8  // -16 to 16
	XONOffset int64

	EgressAlpha int8  // lossy: a queue has at most 2^EgressAlpha * free bytes
	EgressMax   int64 // lossy: and at most this; 0: no limit

	Strict bool   // before all classes that are not; the highest class first
	Weight uint16 // share in DWRR among the others; 0 is 1
	RED    RED
}

// RED says when packets are marked: never up to a queue of Kmin bytes, with the
// probability Pmax * (queue-Kmin)/(Kmax-Kmin) up to Kmax, always above. Kmax =
// 0 marks nothing.
type RED struct {
	Kmin, Kmax int64
	Pmax       uint32 // of 1e6
}

// Routing says how a switch chooses among equal ways.
type Routing uint8

const (
	ECMP       Routing = iota // by a hash of the 5-tuple, with a seed per switch
	Flowlet                   // at random, again after each Gap of a flow (LetFlow)
	LeastQueue                // each packet: the port with the fewest bytes queued; of equal ones any
	Spray                     // each packet: the next port, per destination
)

// WatchdogConfig is the pause watchdog of a switch. When a queue with packets
// in it has been paused for Detect, the queue's packets are dropped, and so is
// what comes for it until the pause has been over for Restore. Detect 0: no
// watchdog.
type WatchdogConfig struct {
	Detect, Restore Time
}

// Headroom returns what a lossless class needs at an ingress port so that
// nothing is lost: what comes in during two cable delays, a packet of the far
// end that has just begun, one of the own that the pause frame waits for, and
// the pause frame (IEEE 802.1Qbb, annex). All sizes are on the wire.
func Headroom(rate int64, delay Time, mtu int) int64 {
	return 2*bytesIn(rate, delay) + 2*int64(mtu) + pauseWire
}

func (c *Config) check() error {
	if c.Hosts < 1 || c.Hosts > maxHosts {
		return fmt.Errorf("network: %d hosts: Config.Hosts must be 1 to %d", c.Hosts, maxHosts)
	}
	if c.MTU < minWire || c.MTU > maxMTU {
		return fmt.Errorf("network: MTU of %d bytes: Config.MTU must be %d to %d", c.MTU, minWire, maxMTU)
	}
	if err := checkDSCP(c.HostDSCP); err != nil {
		return fmt.Errorf("network: Config.HostDSCP: %w", err)
	}
	if c.Parts < 0 || c.Parts > maxParts {
		return fmt.Errorf("network: %d parts: Config.Parts must be 0 to %d", c.Parts, maxParts)
	}
	if c.Trail < 0 || c.Trail > MaxTrail {
		return fmt.Errorf("network: room for %d hops: Config.Trail must be 0 to %d", c.Trail, MaxTrail)
	}
	if c.Converge < 0 {
		return fmt.Errorf("network: Config.Converge is %v: it must not be negative", c.Converge)
	}
	for i := range c.Cables {
		if err := c.checkCable(&c.Cables[i]); err != nil {
			return fmt.Errorf("network: cable %d: %w", i, err)
		}
	}
	for i := range c.Switches {
		if err := c.Switches[i].check(); err != nil {
			return fmt.Errorf("network: switch %d: %w", i, err)
		}
	}
	return nil
}

func (c *Config) checkCable(k *Cable) error {
	nodes := c.Hosts + len(c.Switches)
	for _, n := range []int{k.A, k.B} {
		if n < 0 || n >= nodes {
			return fmt.Errorf("end %d is no node: there are %d hosts and then %d switches", n, c.Hosts, len(c.Switches))
		}
	}
	if k.A == k.B {
		return fmt.Errorf("both ends are node %d", k.A)
	}
	return k.check()
}

// check says what is wrong with what a cable is like.
func (k *Cable) check() error {
	switch {
	case k.Rate < 1e6 || k.Rate > 8e12:
		return fmt.Errorf("rate of %d bit/s: it must be 1 Mb/s to 8 Tb/s", k.Rate)
	case k.Delay < 0 || k.Delay > event.Second:
		return fmt.Errorf("delay of %v: it must be 0 to 1 s", k.Delay)
	case k.Loss > billion:
		return fmt.Errorf("loss of %d packets of 1e9", k.Loss)
	case k.BER > quintillion:
		return fmt.Errorf("bit error rate of %d of 1e18", k.BER)
	case k.Burst > million:
		return fmt.Errorf("bursts of %d lost packets: they have at most %d", k.Burst, million)
	case k.bursty() && uint64(k.Loss)*(uint64(k.Burst)+1) > uint64(k.Burst)*billion:
		return fmt.Errorf("bursts of %d lost packets: then at most %d of %d are lost", k.Burst, k.Burst, k.Burst+1)
	}
	return nil
}

func checkDSCP(m []uint8) error {
	if m == nil {
		return nil
	}
	if len(m) != 64 {
		return fmt.Errorf("%d entries: there must be 64, one for each DSCP", len(m))
	}
	for d, c := range m {
		if c >= NumClasses {
			return fmt.Errorf("DSCP %d has class %d: classes are 0 to %d", d, c, NumClasses-1)
		}
	}
	return nil
}

// ErrBuffer is what is wrong with a switch whose buffer does not hold what its
// ports set aside.
var ErrBuffer = errors.New("buffer")

func (s *Switch) check() error {
	if s.Buffer < 1 || s.Buffer > 1<<40 {
		return fmt.Errorf("%w of %d bytes: Buffer must be 1 to %d", ErrBuffer, s.Buffer, int64(1)<<40)
	}
	if err := checkDSCP(s.DSCP); err != nil {
		return fmt.Errorf("DSCP: %w", err)
	}
	if s.Routing > Spray {
		return fmt.Errorf("routing %d is not known", s.Routing)
	}
	if s.Gap < 0 || s.Watchdog.Detect < 0 || s.Watchdog.Restore < 0 {
		return errors.New("times: Gap and Watchdog must not be negative")
	}
	if err := checkClasses(&s.Classes); err != nil {
		return err
	}
	for p := range s.Ports {
		if err := checkClasses(&s.Ports[p]); err != nil {
			return fmt.Errorf("port %d: %w", p, err)
		}
	}
	return nil
}

func checkClasses(classes *[NumClasses]Class) error {
	for i := range classes {
		if err := classes[i].check(); err != nil {
			return fmt.Errorf("class %d: %w", i, err)
		}
	}
	return nil
}

func (c *Class) check() error {
	const most = 16
	switch {
	case min(c.Reserve, c.Headroom, c.XONOffset, c.EgressMax) < 0:
		return errors.New("sizes: Reserve, Headroom, XONOffset and EgressMax must not be negative")
	case max(c.Reserve, c.Headroom, c.XONOffset, c.EgressMax) > 1<<40:
		return fmt.Errorf("sizes: Reserve, Headroom, XONOffset and EgressMax must not be above %d", int64(1)<<40)
	case max(c.Alpha, c.EgressAlpha) > most || min(c.Alpha, c.EgressAlpha) < -most:
		return fmt.Errorf("thresholds: Alpha %d, EgressAlpha %d: they are exponents of 2, from %d to %d", c.Alpha, c.EgressAlpha, -most, most)
	case c.RED.Kmin < 0 || c.RED.Kmax < 0 || c.RED.Kmax > 0 && c.RED.Kmin > c.RED.Kmax || c.RED.Kmax > 1<<40:
		return fmt.Errorf("marks: RED from %d to %d bytes: Kmin must not be above Kmax", c.RED.Kmin, c.RED.Kmax)
	case c.RED.Pmax > million:
		return fmt.Errorf("marks: RED with Pmax %d of 1e6", c.RED.Pmax)
	}
	return nil
}
