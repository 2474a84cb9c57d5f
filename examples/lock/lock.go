// Package lock shows a lock and a sequence lock in memory that a program
// exports: its clients use them by compare-and-swap, READ and WRITE, and the
// program that exports the memory does nothing. Copy what you need.
// docs/guide.md says on which guarantees of RDMA this rests.
package lock

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/gosoftroce/rocev2/rdma"
)

// ErrLost: the lock was taken away meanwhile.
var ErrLost = errors.New("the lock was taken away")

// Lock is 8 bytes of a region: in the upper half the epoch, which grows with
// each change of the owner, and in the lower half the owner, 0 for none.
type Lock struct {
	Region *rdma.RemoteRegion
	Off    int64  // a multiple of 8
	Me     uint32 // not 0, and different for each client

	// Lease is how long an owner may hold the lock without a Renew. A
	// waiter that sees the same word for so long takes the lock. No clocks
	// are compared.
	Lease time.Duration

	// Pause waits between two looks; nil means 1 ms.
	Pause func(context.Context) error
}

func word(epoch, owner uint32) uint64 { return uint64(epoch)<<32 | uint64(owner) }

// Acquire waits for the lock, and returns what Renew and Release need. Its
// upper half, the epoch, is a fencing token: a server that keeps data under the
// lock refuses an epoch that is smaller than the last one.
//
// With an error Me may own the lock: if the connection or the context has ended
// in a compare-and-swap. The lease ends that.
func (l *Lock) Acquire(ctx context.Context) (held uint64, err error) {
	var seen uint64
	var since time.Time
	for {
		// Adding 0 reads the word in one piece, and in order with the
		// other atomics.
		now, err := l.Region.FetchAdd(ctx, l.Off, 0)
		if err != nil {
			return 0, err
		}
		if now != seen {
			seen, since = now, time.Now()
		}
		if uint32(now) == 0 || !since.IsZero() && time.Since(since) >= l.Lease {
			held = word(uint32(now>>32)+1, l.Me)
			old, err := l.Region.CompareSwap(ctx, l.Off, now, held)
			if err != nil {
				return 0, err
			}
			if old == now {
				return held, nil
			}
			continue // another client was faster
		}
		if err := l.pause(ctx); err != nil {
			return 0, err
		}
	}
}

func (l *Lock) pause(ctx context.Context) error {
	if l.Pause != nil {
		return l.Pause(ctx)
	}
	t := time.NewTimer(time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Renew begins the lease anew, by a new epoch. Call it well before the lease
// ends, as the waiters count from their last look.
func (l *Lock) Renew(ctx context.Context, held uint64) (uint64, error) {
	return l.change(ctx, held, word(uint32(held>>32)+1, l.Me))
}

// Release gives the lock back. A second call, after an error of which the
// outcome is unknown, does no harm: the epoch never comes again, but for its
// wrap after 2^32 changes.
func (l *Lock) Release(ctx context.Context, held uint64) error {
	_, err := l.change(ctx, held, word(uint32(held>>32)+1, 0))
	return err
}

func (l *Lock) change(ctx context.Context, from, to uint64) (uint64, error) {
	old, err := l.Region.CompareSwap(ctx, l.Off, from, to)
	if err == nil && old != from {
		err = ErrLost
	}
	return to, err
}

// Seq is a record that one client writes at a time and any number read without
// a lock: 8 bytes of a version, which is odd while the record is written, and
// then the record.
type Seq struct {
	Region Region
	Off    int64 // a multiple of 8
	Size   int   // of the record
}

// Region is exported memory of a peer: an *rdma.RemoteRegion.
type Region interface {
	Read(ctx context.Context, p []byte, off int64) error
	Write(ctx context.Context, p []byte, off int64) error
	FetchAdd(ctx context.Context, off int64, add uint64) (uint64, error)
}

// Write writes the record. It waits for each step before the next one: the
// version is odd before the first byte changes, and even after the last. The
// caller has a Lock that keeps other writers away. One that has died may have
// left an odd version: then Write begins anew.
func (s *Seq) Write(ctx context.Context, record []byte) error {
	if len(record) != s.Size {
		return errors.New("the record has another size")
	}
	version, err := s.Region.FetchAdd(ctx, s.Off, 0)
	if err != nil {
		return err
	}
	if version%2 == 0 {
		if _, err := s.Region.FetchAdd(ctx, s.Off, 1); err != nil {
			return err
		}
	}
	if err := s.Region.Write(ctx, record, s.Off+8); err != nil {
		return err
	}
	_, err = s.Region.FetchAdd(ctx, s.Off, 1)
	return err
}

// Read reads the record into p, of Size bytes, and returns its version. A READ
// may see some bytes of one WRITE and others of the next. So the version is
// read before the record and after it, by requests of their own: within one
// READ no order of the bytes is promised.
func (s *Seq) Read(ctx context.Context, p []byte) (version uint64, err error) {
	var before, after [8]byte
	for {
		if err := s.Region.Read(ctx, before[:], s.Off); err != nil {
			return 0, err
		}
		if err := s.Region.Read(ctx, p[:s.Size], s.Off+8); err != nil {
			return 0, err
		}
		if err := s.Region.Read(ctx, after[:], s.Off); err != nil {
			return 0, err
		}
		version = binary.NativeEndian.Uint64(before[:])
		if before == after && version%2 == 0 {
			return version, nil
		}
	}
}
