package verbs

import (
	"errors"
	"fmt"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2/psp"
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
	if err := c.rekeys(); err != nil {
		return h, err
	}
	return h, c.congestion(&h)
}

// rekeys reports what is wrong with when there are new keys.
func (c *Config) rekeys() error {
	const most = psp.MaxPackets / 2
	switch {
	case !c.Sealing && (c.RekeyPackets != 0 || c.RekeyAfter != 0):
		return errors.New("fields RekeyPackets and RekeyAfter: without Sealing there are no keys; set it")
	case c.RekeyPackets > most:
		return fmt.Errorf("field RekeyPackets is %d: at most %d, or 0 for that", c.RekeyPackets, most)
	case c.RekeyAfter < 0:
		return fmt.Errorf("field RekeyAfter is %v: a time above 0, or 0 for 24 hours", c.RekeyAfter)
	}
	return nil
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
