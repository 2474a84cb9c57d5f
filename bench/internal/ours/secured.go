package ours

import (
	"crypto/sha256"
	"fmt"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
	"github.com/gosoftroce/rocev2/verbs"
)

// Seal says how packets are sealed.
type Seal string

// Algorithms.
const (
	Clear   Seal = "" // not at all
	GCM128  Seal = "gcm128"
	GMAC128 Seal = "gmac128"
)

// version returns the algorithm of packets that are sealed.
func (s Seal) version() (verbs.SealVersion, error) {
	switch s {
	case GCM128:
		return verbs.SealGCM128, nil
	case GMAC128:
		return verbs.SealGMAC128, nil
	}
	return 0, fmt.Errorf("packets are not sealed with %q, but with %s or %s", string(s), GCM128, GMAC128)
}

// association is that of packets to a queue pair. Its key is no secret: nothing
// is protected here.
func association(v verbs.SealVersion, to verbs.Endpoint) verbs.Association {
	sum := sha256.Sum256(fmt.Append(nil, "rocebench ", to.Addr, to.QPN))
	return verbs.Association{SPI: uint32(to.QPN), Version: v, Key: sum[:v.KeyLen()]} // the first generation
}

// secure has a connected queue pair take sealed packets alone, and send such.
func (s *side) secure(q *verbs.QP, peer verbs.Endpoint) error {
	v, err := s.cfg.Seal.version()
	if err != nil {
		return err
	}
	sealing, err := q.Sealing()
	if err != nil {
		return err
	}
	if err := sealing.Accept(association(v, q.Endpoint())); err != nil {
		return err
	}
	if err := sealing.Require(); err != nil {
		return err
	}
	return sealing.Seal(association(v, peer))
}

// sealMishaps adds what went wrong with sealed packets.
func (s *side) sealMishaps(r *pair.Result) {
	c := s.dev.SealCounters()
	c.Each(func(name string, n uint64) {
		switch {
		case n == 0:
		case name == "psp_sealed" || name == "psp_opened" || name == "psp_rekeys":
			r.Counts[name] += n
		default:
			r.Errors[name] += n
		}
	})
	if c.Sealed == 0 || c.Opened == 0 {
		r.Errors["no packet was sealed"]++
	}
}
