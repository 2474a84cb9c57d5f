package verbs

import (
	"reflect"
	"unsafe"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// The structs of this package are types of its own, so that go doc shows their
// fields. The layers below have the same structs, field by field. This file is
// the boundary between the two; no other file of the package uses unsafe.
//
// Requests and completions pass without a copy: the same memory is seen as the
// other type (rule 1 of package unsafe, *T1 to *T2 of equal layout). The
// compiler checks the layouts below as far as it can, and TestLayouts compares
// them field by field.

// view returns the elements of s as values of another type of the same layout.
// They are not copied.
func view[To, From any](s []From) []To {
	return unsafe.Slice((*To)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
}

func sendWRsOf(wrs []SendWR) []ib.SendWR { return view[ib.SendWR](wrs) }
func recvWRsOf(wrs []RecvWR) []ib.RecvWR { return view[ib.RecvWR](wrs) }
func wcsOf(wcs []WC) []ib.WC             { return view[ib.WC](wcs) }

// The types that view is used for, and what they are made of. Where one struct
// holds another, Go has no conversion, and the sizes must do.
var (
	_ = ib.SGE(SGE{})
	_ = ib.RemoteAddr(RemoteAddr{})
	_ = ib.WC(WC{})

	_ [unsafe.Sizeof(SendWR{})]byte = [unsafe.Sizeof(ib.SendWR{})]byte{}
	_ [unsafe.Sizeof(RecvWR{})]byte = [unsafe.Sizeof(ib.RecvWR{})]byte{}
)

// attrOf returns a as package ib has it.
func attrOf(a *Attr) *ib.Attr {
	return &ib.Attr{
		State:           a.State,
		CurState:        a.CurState,
		EnableSQDNotify: a.EnableSQDNotify,
		Access:          a.Access,
		PKeyIndex:       a.PKeyIndex,
		Port:            a.Port,
		QKey:            a.QKey,
		AV:              ib.AddressVector(a.AV),
		PathMTU:         a.PathMTU,
		Timeout:         a.Timeout,
		RetryCount:      a.RetryCount,
		RNRRetry:        a.RNRRetry,
		RQPSN:           a.RQPSN,
		SQPSN:           a.SQPSN,
		MaxRdAtomic:     a.MaxRdAtomic,
		MaxDestRdAtomic: a.MaxDestRdAtomic,
		MinRNRTimer:     a.MinRNRTimer,
		DestQPN:         a.DestQPN,
		PathMigState:    a.PathMigState,
		RateLimit:       a.RateLimit,
		RateBurst:       a.RateBurst,
	}
}

// attrFrom returns a as programs see it.
func attrFrom(a *ib.Attr) Attr {
	return Attr{
		State:           a.State,
		CurState:        a.CurState,
		EnableSQDNotify: a.EnableSQDNotify,
		Access:          a.Access,
		PKeyIndex:       a.PKeyIndex,
		Port:            a.Port,
		QKey:            a.QKey,
		AV:              AddressVector(a.AV),
		PathMTU:         a.PathMTU,
		Timeout:         a.Timeout,
		RetryCount:      a.RetryCount,
		RNRRetry:        a.RNRRetry,
		RQPSN:           a.RQPSN,
		SQPSN:           a.SQPSN,
		MaxRdAtomic:     a.MaxRdAtomic,
		MaxDestRdAtomic: a.MaxDestRdAtomic,
		MinRNRTimer:     a.MinRNRTimer,
		DestQPN:         a.DestQPN,
		PathMigState:    a.PathMigState,
		RateLimit:       a.RateLimit,
		RateBurst:       a.RateBurst,
	}
}

// errorFrom returns err as programs see it: the error structs of the layers
// below become those of this package.
func errorFrom(err error) error {
	switch e := err.(type) {
	case *ib.ModifyError:
		return (*ModifyError)(e)
	case *hca.RangeError:
		return (*RangeError)(e)
	case *udp.OpenError:
		return (*OpenError)(e)
	}
	return err
}

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
		Link:          LinkStats(s.Link),
		Drops:         s.Drops,
		LoopPackets:   s.LoopPackets,
		LoopBytes:     s.LoopBytes,
		SendErrors:    s.SendErrors,
		QPs:           s.QPs,
		MRs:           s.MRs,
		EventsDropped: s.Events,
	}
}

// Each calls f for every counter with its name, such as "tx_packets", in fixed
// order.
func (s *LinkStats) Each(f func(name string, value uint64)) {
	(*transport.LinkStats)(s).Each(f)
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

// openErrorText returns the text of e, which is that of the link.
func openErrorText(e *OpenError) string { return (*udp.OpenError)(e).Error() }
