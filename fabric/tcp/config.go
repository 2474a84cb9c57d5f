package tcp

import (
	"cmp"
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// Bounds of a Config.
const (
	LeastMSS   = 536  // RFC 9293 3.7.1
	MostMSS    = 4096 // which is what a packet of RoCE may have
	MostWindow = 1 << 30
	MostAckFor = 64
)

// Config is how a Stream is carried. The zero Config has the defaults.
type Config struct {
	MSS           int // bytes of a segment, 536 to 4096; 0: 1460
	InitialWindow int // in segments, 1 to 1000; 0: 10 (RFC 6928)
	Window        int // bytes that the receiver has room for, up to 2^30 (RFC 7323 2.3); 0: 6 MiB
	Control       Control
	ECN           bool       // RFC 3168; DCTCP has it anyway
	MinRTO        event.Time // least retransmission timeout; 0: 1 s (RFC 6298 2.4)
	AckEvery      int        // segments for which there is one acknowledgement, 1 to 64; 0: 2
	AckDelay      event.Time // how long one waits for more of them, less than MinRTO; 0: 40 ms, or half of MinRTO if that is less

	DSCP    uint8
	SrcPort uint16 // chooses the way, as a UDP source port; 0: the next one of the host
}

func (c Config) withDefaults() (Config, error) {
	c.MSS = cmp.Or(c.MSS, 1460)
	c.InitialWindow = cmp.Or(c.InitialWindow, 10)
	c.Window = cmp.Or(c.Window, 6<<20)
	c.MinRTO = cmp.Or(c.MinRTO, DefaultMinRTO)
	c.AckEvery = cmp.Or(c.AckEvery, 2)
	c.AckDelay = cmp.Or(c.AckDelay, max(min(40*event.Millisecond, c.MinRTO/2), 1))
	switch {
	case c.MSS < LeastMSS || c.MSS > MostMSS:
		return c, fmt.Errorf("tcp: Config.MSS is %d: it is %d to %d", c.MSS, LeastMSS, MostMSS)
	case c.InitialWindow < 1 || c.InitialWindow > 1000:
		return c, fmt.Errorf("tcp: Config.InitialWindow is %d: it is 1 to 1000 segments", c.InitialWindow)
	case c.Window < 2*c.MSS || c.Window > MostWindow:
		return c, fmt.Errorf("tcp: Config.Window is %d: it is two segments to %d", c.Window, MostWindow)
	case c.MinRTO < 1 || c.MinRTO > mostRTO:
		return c, fmt.Errorf("tcp: Config.MinRTO is %v: it is above 0, and at most %v", c.MinRTO, mostRTO)
	case c.AckEvery < 1 || c.AckEvery > MostAckFor:
		return c, fmt.Errorf("tcp: Config.AckEvery is %d: it is 1 to %d", c.AckEvery, MostAckFor)
	case c.AckDelay < 1 || c.AckDelay >= max(c.MinRTO, 2):
		return c, fmt.Errorf("tcp: Config.AckDelay is %v: it is above 0, and less than MinRTO, %v, which else is over before the acknowledgement comes", c.AckDelay, c.MinRTO)
	case c.DSCP > 63:
		return c, fmt.Errorf("tcp: Config.DSCP is %d: there are 0 to 63", c.DSCP)
	}
	return c, nil
}

// Check returns what is wrong with a Config.
func (c Config) Check() error {
	_, err := c.withDefaults()
	return err
}

func (c *Config) ecn() bool { return c.ECN || c.Control == DCTCP }

// scale returns by how many bits windows are shifted (RFC 7323 2.2).
func (c *Config) scale() (n uint8) {
	for c.Window>>n > 1<<16-1 {
		n++
	}
	return n
}

// Stats are counters.
type Stats struct {
	Segments    uint64 // with bytes, SYN or FIN, that were sent
	Retransmits uint64 // of these, sent again
	Recoveries  uint64 // fast ones
	Timeouts    uint64
	Cuts        uint64 // of windows, because of marks
	Echoes      uint64 // acknowledgements that told of marks
	Acks        uint64 // that were sent
	Marked      uint64 // segments that came with congestion experienced
	Duplicates  uint64 // segments that came, and had come before
	Reordered   uint64 // segments that came before others that are ahead of them
	RxBytes     uint64 // of payload that have come in order
}

// Add adds counters.
func (s *Stats) Add(o *Stats) {
	s.Segments += o.Segments
	s.Retransmits += o.Retransmits
	s.Recoveries += o.Recoveries
	s.Timeouts += o.Timeouts
	s.Cuts += o.Cuts
	s.Echoes += o.Echoes
	s.Acks += o.Acks
	s.Marked += o.Marked
	s.Duplicates += o.Duplicates
	s.Reordered += o.Reordered
	s.RxBytes += o.RxBytes
}
