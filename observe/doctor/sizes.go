package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/observe/doctor/probe"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Method is a way to see that a packet has arrived at a peer.
type Method struct {
	Name string
	Prober
}

// Size is what came of packets of one size.
type Size struct {
	PathMTU int    `json:"path_mtu"` // bytes of payload
	Bytes   int    `json:"bytes"`    // of the IP packet
	Fits    bool   `json:"fits"`
	Note    string `json:"note,omitempty"` // why it does not fit
}

// SizeResult is what fits through the way to a peer.
type SizeResult struct {
	Method  string `json:"method"`   // how the peer showed that packets arrive; "" if it did not
	PathMTU int    `json:"path_mtu"` // the largest that fits; 0 if none or not known
	Sizes   []Size `json:"sizes"`    // from the largest down to the first that fits
	Lost    bool   `json:"lost"`     // larger ones vanish without a message
}

// tries is how often a packet is sent until it counts as lost. Hosts say once a
// second only that a port is closed.
const tries = 4

// Sizes finds the largest path MTU that fits through the way to a peer, up to
// what carries mtu bytes. It takes the first of the methods to which the peer
// answers at all. Packets are not fragmented.
func Sizes(ctx context.Context, peer netip.Addr, mtu int, methods []Method, timeout time.Duration) (r SizeResult, err error) {
	timeout = cmp.Or(timeout, time.Second)
	var m Method
	for _, m = range methods {
		a, err := insist(ctx, m, probe.MinSize(peer), timeout, 2)
		if err != nil {
			return r, err
		}
		if a.Reached(peer) {
			r.Method = m.Name
			break
		}
	}
	if r.Method == "" {
		return r, nil
	}
	for size := rocev2.MTU4096; size.Valid(); size-- {
		s := Size{PathMTU: size.Bytes(), Bytes: packetSize(peer, size)}
		if mtu > 0 && s.Bytes > mtu {
			s.Note = fmt.Sprintf("the own interface carries %d bytes", mtu)
			r.Sizes = append(r.Sizes, s)
			continue
		}
		a, err := insist(ctx, m, s.Bytes, timeout, tries)
		if err != nil {
			return r, err
		}
		if s.Fits = a.Reached(peer); !s.Fits {
			s.Note = sizeNote(a)
			r.Lost = r.Lost || a.Kind == probe.Silent
		}
		r.Sizes = append(r.Sizes, s)
		if s.Fits {
			r.PathMTU = s.PathMTU
			break
		}
	}
	return r, nil
}

func sizeNote(a probe.Answer) string {
	switch {
	case a.Kind == probe.Silent:
		return "lost without a word"
	case a.Kind == probe.TooBig && a.MTU == 0 && a.Local:
		return "the own interface drops it: the other end of its cable takes less"
	case a.Kind == probe.TooBig && a.Local:
		return fmt.Sprintf("the own interface carries %d bytes", a.MTU)
	case a.Kind == probe.TooBig:
		return fmt.Sprintf("%v passes on %d bytes only", a.From, a.MTU)
	}
	return fmt.Sprintf("%v (%v)", a.Kind, a.From)
}

// insist sends a packet until something comes back.
func insist(ctx context.Context, p Prober, size int, timeout time.Duration, tries int) (a probe.Answer, err error) {
	for range tries {
		if a, err = p.Probe(ctx, 0, size, timeout); err != nil || a.Kind != probe.Silent {
			return a, err
		}
	}
	return a, nil
}
