package fabric

import (
	"cmp"
	"time"
)

// Config describes a network. The zero value has no loss, no delay and no limit
// of rate.
type Config struct {
	Port    PortConfig // of every port that is attached without its own
	LinkMTU int        // bytes of an IP packet that the network carries; 0 = 9000
	Seed    uint64     // of all random decisions
}

// PortConfig describes a port and the cable to it. Loss and the other rates of
// impairment are probabilities from 0 to 1 for each packet on its way to the
// port. A packet from port to port suffers only those of the receiving port.
type PortConfig struct {
	Rate  int64         // bits per second in each direction, IP headers counted; 0 = no limit
	Delay time.Duration // from the switch to the port

	LinkMTU int // bytes of an IP packet that the port sends; 0 = those of the network

	Loss         float64       // the packet is gone
	Duplicate    float64       // it comes twice
	Corrupt      float64       // one bit that the ICRC covers is flipped
	Reorder      float64       // the packet is late by ReorderDelay
	ReorderDelay time.Duration // 0 = 100 µs

	QueueBytes   int // egress queue of the switch before tail drop; 0 = 1 MiB; counts only with a Rate
	ECNThreshold int // bytes queued from which ECN-capable packets are marked; 0 = never
	SendBuffer   int // bytes waiting for the uplink before Send blocks; 0 = 256 KiB
	RecvBuffer   int // bytes waiting for Recv before packets are dropped, some overhead included; 0 = 4 MiB
}

// Defaults of the sizes.
const (
	defaultLinkMTU      = 9000
	defaultReorderDelay = 100 * time.Microsecond
	defaultQueue        = 1 << 20
	defaultSendBuffer   = 256 << 10
	defaultRecvBuffer   = 4 << 20
)

// Negative values stand for the defaults too.
func (c *Config) fill() {
	c.LinkMTU = cmp.Or(max(c.LinkMTU, 0), defaultLinkMTU)
}

func (c *PortConfig) fill() {
	c.QueueBytes = cmp.Or(max(c.QueueBytes, 0), defaultQueue)
	c.SendBuffer = cmp.Or(max(c.SendBuffer, 0), defaultSendBuffer)
	c.RecvBuffer = cmp.Or(max(c.RecvBuffer, 0), defaultRecvBuffer)
	c.ReorderDelay = cmp.Or(max(c.ReorderDelay, 0), defaultReorderDelay)
}

// serialization returns how long n bytes take at the port's rate.
func (c *PortConfig) serialization(n int) time.Duration {
	if c.Rate <= 0 {
		return 0
	}
	// n is at most a buffer's size; 8e9·n overflows beyond 1 GiB.
	return time.Duration(float64(n) * 8e9 / float64(c.Rate))
}

// Bytes of headers in front of the BTH, which count for rates and the MTU.
const (
	headersIPv4 = 20 + 8
	headersIPv6 = 40 + 8
)

// defaultHops is the hop limit of packets whose path asks for no other.
const defaultHops = 64

// frameOverhead is charged for a packet in the receive buffer besides its
// bytes.
const frameOverhead = 64

// maxUnderWay bounds the bytes that are under way to one port, whatever its
// rate and delay.
const maxUnderWay = 64 << 20
