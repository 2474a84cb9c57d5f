//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/verbs"
)

// lostError says that something is not as it was acknowledged.
type lostError struct{ what error }

func (e *lostError) Error() string { return e.what.Error() }

// worker has one connection at a time, and knows what was acknowledged.
type worker struct {
	o      options
	dev    *verbs.Device
	server string
	conn   int // number of the connection among all
	place  int // among those of the server
	rng    *rand.Rand
	file   *os.File

	seq            uint64 // last record that is acknowledged
	added, posted  uint64 // atomics that have completed, and that were posted
	rounds         atomic.Uint64
	verified       atomic.Uint64
	dials          atomic.Uint64
	record, echoed []byte
}

// beClients runs the workers of one process.
func beClients(ctx context.Context, o options) error {
	dev, err := open(o)
	if err != nil {
		return err
	}
	defer dev.Close()
	go endWith(ctx, dev)
	servers := strings.Split(o.servers, ",")
	workers := make([]*worker, o.conns)
	for i := range workers {
		n := o.first + i
		w := &worker{o: o, dev: dev, conn: n, place: n / len(servers), server: servers[n%len(servers)],
			rng: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(n))), record: make([]byte, recordLen), echoed: make([]byte, 1<<16)}
		if err := w.load(); err != nil {
			return err
		}
		workers[i] = w
	}
	var lost atomic.Pointer[lostError]
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(func() {
			if e := w.work(ctx); e != nil {
				lost.CompareAndSwap(nil, e)
			}
		})
	}
	report(ctx, o, func(s *sample) {
		s.take(dev)
		s.Slowest = ^uint64(0)
		for _, w := range workers {
			r := w.rounds.Load()
			s.Rounds += r
			s.Slowest = min(s.Slowest, r)
			s.Verified += w.verified.Load()
			s.Dials += w.dials.Load()
		}
		if e := lost.Load(); e != nil {
			s.Lost = e.Error()
		}
	})
	all.Wait()
	if e := lost.Load(); e != nil {
		return e
	}
	return nil
}

// load reads what the process before this one knew.
func (w *worker) load() (err error) {
	w.file, err = os.OpenFile(filepath.Join(w.o.dir, fmt.Sprintf("client%d", w.conn)), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	var b [24]byte
	if n, _ := w.file.ReadAt(b[:], 0); n == len(b) {
		w.seq, w.added, w.posted = binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	}
	return nil
}

// save makes what is acknowledged outlive the process.
func (w *worker) save() error {
	var b [24]byte
	binary.LittleEndian.PutUint64(b[:], w.seq)
	binary.LittleEndian.PutUint64(b[8:], w.added)
	binary.LittleEndian.PutUint64(b[16:], w.posted)
	_, err := w.file.WriteAt(b[:], 0)
	return err
}

// work makes one connection after the other, until something is lost.
func (w *worker) work(ctx context.Context) *lostError {
	for ctx.Err() == nil {
		err := w.connection(ctx)
		var lost *lostError
		if errors.As(err, &lost) {
			return lost
		}
		w.pause(ctx, 200*time.Millisecond) // the server may be on its way
	}
	return nil
}

func (w *worker) pause(ctx context.Context, mean time.Duration) {
	t := time.NewTimer(time.Duration(w.rng.Int64N(int64(2*mean) + 1)))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// connection works until its connection ends.
func (w *worker) connection(ctx context.Context) error {
	w.dials.Add(1)
	dialing, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := (&rdma.Dialer{Device: w.dev, KeepAlive: keepAlive}).Dial(dialing, w.server)
	if err != nil {
		return err
	}
	defer c.Close()
	j, err := c.Region(dialing, journal)
	if err != nil {
		return err
	}
	n, err := c.Region(dialing, counters)
	if err != nil {
		return err
	}
	if err := w.verify(dialing, j, n); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := w.round(ctx, c, j, n); err != nil {
			return err
		}
		w.rounds.Add(1)
		w.pause(ctx, w.o.pace)
	}
	return nil
}

// verify looks for all that was acknowledged.
func (w *worker) verify(ctx context.Context, j, n *rdma.RemoteRegion) error {
	if w.seq > 0 {
		if err := j.Read(ctx, w.record, place(w.place, w.seq)); err != nil {
			return err
		}
		if err := check(w.record, w.conn, w.seq); err != nil {
			return &lostError{err}
		}
	}
	count, err := n.FetchAdd(ctx, int64(w.place)*counterLen, 0)
	if err != nil {
		return err
	}
	if count < w.added || count > w.posted {
		return &lostError{fmt.Errorf("counter of connection %d is %d; %d atomics have completed, %d were posted", w.conn, count, w.added, w.posted)}
	}
	w.added, w.posted = count, count
	w.verified.Add(1)
	return w.save()
}

// round writes a record, counts, and has a message echoed.
func (w *worker) round(ctx context.Context, c *rdma.Conn, j, n *rdma.RemoteRegion) error {
	fill(w.record, w.conn, w.seq+1)
	if err := j.Write(ctx, w.record, place(w.place, w.seq+1)); err != nil {
		return err
	}
	w.seq++
	w.posted++
	if err := w.save(); err != nil { // before the request, which may succeed without an answer
		return err
	}
	before, err := n.FetchAdd(ctx, int64(w.place)*counterLen, 1)
	if err != nil {
		return err
	}
	if before != w.added {
		return &lostError{fmt.Errorf("an atomic of connection %d found %d after %d", w.conn, before, w.added)}
	}
	w.added++
	if err := w.save(); err != nil {
		return err
	}
	msg := w.record[:w.rng.IntN(recordLen)+1]
	if err := c.Send(ctx, msg); err != nil {
		return err
	}
	got, err := c.Recv(ctx, w.echoed)
	if err != nil {
		return err
	}
	if !bytes.Equal(w.echoed[:got], msg) {
		return &lostError{fmt.Errorf("a message of %d bytes of connection %d came back as another, of %d", len(msg), w.conn, got)}
	}
	return nil
}
