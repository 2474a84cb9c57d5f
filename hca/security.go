package hca

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/ib"
)

// Accept has q, which is connected, take sealed packets, and none in clear
// after the first of them: see engine.QP.Accept. The link opens them.
func (q *QP) Accept() error {
	return q.secure(func(*shard) error {
		q.core.Accept()
		return nil
	})
}

// Seal has packets of q, which is connected and accepts sealed ones, leave with
// a security association of the link from now on.
func (q *QP) Seal(spi uint32) error {
	return q.secure(func(s *shard) error {
		if q.core.Security() == engine.SecurityClear {
			return errors.New("hca: a queue pair accepts sealed packets before it seals its own")
		}
		q.core.Seal(s.eng, spi)
		return nil
	})
}

// Closed reports whether q is closed.
func (q *QP) Closed() bool {
	q.shard.lock()
	defer q.shard.unlock()
	return q.closed
}

// Security returns what q takes.
func (q *QP) Security() engine.Security {
	s := q.shard
	s.lock()
	defer s.unlock()
	return q.core.Security()
}

// Part returns on which of the device's links the packets of q come and go.
func (q *QP) Part() int { return slices.Index(q.owner.dev.shards, q.shard) }

// secure calls f for a queue pair that has a peer.
func (q *QP) secure(f func(*shard) error) error {
	s := q.shard
	s.lock()
	defer s.unlock()
	switch core := q.core.Core(); {
	case q.closed:
		return ErrClosed
	case !core.Reliable() || !core.Attr().AV.DGID.IsValid():
		return fmt.Errorf("hca: queue pair %v of type %v has no peer: only one of a reliable service that is connected has security associations", q.QPN(), core.Type())
	}
	return f(s)
}

// RequireSealed has q, which is not connected yet or accepts sealed packets,
// take no others from now on. That ends when it goes to RESET.
func (q *QP) RequireSealed() error {
	s := q.shard
	s.lock()
	defer s.unlock()
	core := q.core.Core()
	switch state := core.Attr().State; {
	case q.closed:
		return ErrClosed
	case !core.Reliable():
		return fmt.Errorf("hca: packets of queue pair %v of type %v cannot be sealed: only those of a reliable service can", q.QPN(), core.Type())
	case q.core.Security() == engine.SecurityClear && state != ib.StateReset && state != ib.StateInit:
		return fmt.Errorf("hca: queue pair %v is in %v, and may have taken packets in clear: it must be in RESET or INIT, or accept sealed packets", q.QPN(), state)
	}
	q.core.RequireSealed()
	return nil
}
