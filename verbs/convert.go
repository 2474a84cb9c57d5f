package verbs

import (
	"reflect"

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
	}
	if err := c.strict(&h); err != nil {
		return h, err
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

// qpStatsFrom returns s as programs see it. Both list their counters in the
// same order and under the same names.
func qpStatsFrom(s *qp.Stats) (st QPStats) {
	all, drops := reflect.ValueOf(&st).Elem(), reflect.ValueOf(&st.Drops).Elem()
	i, counters := 0, all.NumField()-1
	s.Each(func(_ string, value uint64) {
		if i < counters {
			all.Field(i).SetUint(value)
		} else {
			drops.Field(i - counters).SetUint(value)
		}
		i++
	})
	return st
}
