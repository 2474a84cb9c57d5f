package verbs

import (
	"errors"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// hcaConfig returns the part of c that is the adapter's.
func (c *Config) hcaConfig() (hca.Config, error) {
	h := hca.Config{
		Spin: c.Spin,
		Window: qp.WindowConfig{
			InitialBytes: c.InitialWindow,
			MaxBytes:     c.MaxWindow,
			MaxPSNs:      c.MaxWindowPackets,
		},
		ReadChunk: c.ReadChunk,
		MinProbe:  c.MinProbe,
		Loopback:  c.Loopback,
		Random:    c.Random,
	}
	if err := c.strict(&h); err != nil {
		return h, err
	}
	if c.Sealing && c.SharedMemory {
		return h, errors.New("fields Sealing and SharedMemory: what passes through memory is not sealed; take one of them out")
	}
	return h, c.congestion(&h)
}

// udpConfig returns the part of c that is the socket's.
func (c *Config) udpConfig() udp.Config {
	return udp.Config{
		Port:       c.Port,
		RecvBuffer: c.RecvBuffer,
		SendBuffer: c.SendBuffer,
		DisableGSO: c.DisableGSO,
		DisableGRO: c.DisableGRO,
	}
}

func statsFrom(s hca.Stats) Stats {
	return Stats{
		Link:          s.Link,
		Drops:         s.Drops,
		LoopPackets:   s.LoopPackets,
		LoopBytes:     s.LoopBytes,
		SendErrors:    s.SendErrors,
		QPs:           s.QPs,
		MRs:           s.MRs,
		EventsDropped: s.Events,
	}
}
