package ours

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
	"github.com/gosoftroce/rocev2/verbs"
)

// seals are the algorithms by the names of Config.Seal.
var seals = map[string]verbs.SealVersion{"gcm128": verbs.SealGCM128, "gmac128": verbs.SealGMAC128}

// association returns that of packets which are sealed for a queue pair. Anyone
// can know its key: nothing is protected here. The two directions have keys of
// their own, as the addresses differ.
func (s *side) association(receiver verbs.Endpoint) (verbs.Association, error) {
	v, ok := seals[s.cfg.Seal]
	if !ok {
		return verbs.Association{}, fmt.Errorf("there is no algorithm %q", s.cfg.Seal)
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint32(receiver.Addr.AsSlice(), uint32(receiver.QPN)))
	return verbs.Association{SPI: uint32(receiver.QPN), Version: v, Key: sum[:v.KeyLen()]}, nil
}

// seal has a queue pair, which is connected, seal all and take nothing in
// clear, if the run is sealed.
func (s *side) seal(q *verbs.QP, peer verbs.Endpoint) error {
	if s.cfg.Seal == "" {
		return nil
	}
	to, err := s.association(q.Endpoint())
	if err != nil {
		return err
	}
	from, err := s.association(peer)
	if err != nil {
		return err
	}
	sealing, err := q.Sealing()
	if err != nil {
		return err
	}
	return errors.Join(sealing.Accept(to), sealing.Seal(from), sealing.OnlySealed())
}

// sealMishaps adds the sealed packets that were dropped.
func (s *side) sealMishaps(r *pair.Result) {
	if s.cfg.Seal == "" {
		return
	}
	c := s.dev.SealCounters()
	c.Each(func(name string, n uint64) {
		switch name {
		case "psp_sealed", "psp_opened", "psp_rekeys":
		default:
			if n > 0 {
				r.Errors[name] += n
			}
		}
	})
	if c.Sealed == 0 || c.Opened == 0 {
		r.Errors["nothing was sealed"]++
	}
}
