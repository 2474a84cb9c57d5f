package world_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/world"
	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

const service = 4000

// visit connects by the connection manager, writes, and disconnects.
func visit(ctx context.Context, dev *verbs.Device, to netip.AddrPort, text string) error {
	s, err := newSide(dev, make([]byte, 64))
	if err != nil {
		return err
	}
	conn, err := cm.Dial(ctx, s.qp, to, cm.DialConfig{PrivateData: []byte(text)})
	if err != nil {
		return err
	}
	var theirs verbs.RemoteMemory
	if _, err := fmt.Sscan(string(conn.PrivateData()), &theirs.Addr, &theirs.Length, (*uint32)(&theirs.RKey)); err != nil {
		return err
	}
	copy(s.mr.Bytes(), text)
	if err := s.qp.PostSend(verbs.SendWR{Opcode: verbs.OpWriteImm, SGList: []verbs.SGE{s.mr.Slice(0, 64)}, Remote: theirs.At(0), Signaled: true}); err != nil {
		return err
	}
	if err := s.await(ctx, 1); err != nil {
		return err
	}
	return conn.Disconnect(ctx)
}

// welcome takes that many visits, and returns what was written.
func welcome(ctx context.Context, dev *verbs.Device, ln *cm.Listener, visits int) (texts []string, err error) {
	for range visits {
		r, err := ln.Accept(ctx)
		if err != nil {
			return texts, err
		}
		s, err := newSide(dev, make([]byte, 64))
		if err != nil {
			return texts, err
		}
		if err := s.qp.Init(); err != nil {
			return texts, err
		}
		if err := s.qp.PostRecv(verbs.RecvWR{}); err != nil {
			return texts, err
		}
		mine := s.mr.Remote()
		conn, err := r.Accept(ctx, s.qp, cm.AcceptConfig{PrivateData: fmt.Appendf(nil, "%d %d %d ", mine.Addr, mine.Length, uint32(mine.RKey))})
		if err != nil {
			return texts, err
		}
		if err := s.await(ctx, 1); err != nil {
			return texts, err
		}
		texts = append(texts, string(bytes.TrimRight(s.mr.Bytes(), "\x00")))
		if err := conn.Wait(ctx); !errors.Is(err, cm.ErrDisconnected) {
			return texts, fmt.Errorf("the connection has ended: %w", err)
		}
		if err := s.qp.Close(); err != nil {
			return texts, err
		}
	}
	return texts, ln.Close()
}

// Programs connect by the connection manager, over sockets and across a
// leaf-spine network.
func TestConnectionManager(t *testing.T) {
	t.Parallel()
	const visits = 12
	run := func(t *testing.T, p platform, server netip.Addr, dev *verbs.Device) {
		ln, err := cm.Listen(dev, netip.AddrPortFrom(server, service), cm.ListenConfig{})
		must(t, err)
		var texts []string
		p.start(0, func(ctx context.Context, dev *verbs.Device) (err error) {
			texts, err = welcome(ctx, dev, ln, visits)
			return err
		})
		for i := range visits {
			p.start(1+i%3, func(ctx context.Context, dev *verbs.Device) error {
				return visit(ctx, dev, ln.Addr().(*cm.Addr).AddrPort, fmt.Sprintf("visitor %d", i))
			})
		}
		p.finish(t)
		seen := map[string]bool{}
		for _, text := range texts {
			seen[text] = true
		}
		if len(seen) != visits {
			t.Errorf("the server has seen %q", texts)
		}
	}
	t.Run("sockets", func(t *testing.T) {
		t.Parallel()
		s := newSockets(t, 4)
		run(t, s, s.devs[0].Addr(), s.devs[0])
	})
	t.Run("world", func(t *testing.T) {
		t.Parallel()
		var digests [2]uint64
		for i := range digests {
			w := newWorld(t, world.Config{Network: clos(t, 0, 1)})
			dev, err := w.Device(0)
			must(t, err)
			run(t, simulated{w}, world.Addr(0), dev)
			digests[i] = w.Digest()
			t.Logf("it took %v", w.Now())
		}
		if digests[0] != digests[1] {
			t.Errorf("the digests are %x", digests)
		}
	})
}

// A dial to a host that does not listen fails in a round trip; a dial to a host
// that is not there gives up in its own time.
func TestDialInVain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{Network: star(3)})
	there, err := w.Device(1)
	must(t, err)
	must(t, cm.Start(there))
	must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
		s, err := newSide(dev, make([]byte, 64))
		if err != nil {
			return err
		}
		var rejected *cm.RejectedError
		begun := w.Now()
		if _, err := cm.Dial(ctx, s.qp, netip.AddrPortFrom(world.Addr(1), service), cm.DialConfig{}); !errors.As(err, &rejected) {
			t.Errorf("where nobody listens: %v", err)
		}
		if d := w.Now() - begun; d > 10*time.Microsecond {
			t.Errorf("to be rejected took %v", d)
		}
		must(t, s.qp.Modify(&verbs.Attr{State: verbs.StateReset}, verbs.AttrState))
		begun = w.Now()
		if _, err := cm.Dial(ctx, s.qp, netip.AddrPortFrom(world.Addr(2), service), cm.DialConfig{Retries: 2}); !errors.Is(err, cm.ErrUnreachable) {
			t.Errorf("where nobody is: %v", err)
		}
		if d := w.Now() - begun; d < 250*time.Millisecond || d > 10*time.Second {
			t.Errorf("to give up took %v", d)
		}
		short, cancel := w.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		must(t, s.qp.Modify(&verbs.Attr{State: verbs.StateReset}, verbs.AttrState))
		if _, err := cm.Dial(short, s.qp, netip.AddrPortFrom(world.Addr(2), service), cm.DialConfig{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a millisecond: %v", err)
		}
		return nil
	}))
	must(t, w.Run())
}

// A goroutine that is no program of the world cannot wait for a connection, and
// is told so.
func TestConnectOutside(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{Network: star(2)})
	dev, err := w.Device(0)
	must(t, err)
	s, err := newSide(dev, make([]byte, 64))
	must(t, err)
	if _, err := cm.Dial(t.Context(), s.qp, netip.AddrPortFrom(world.Addr(1), service), cm.DialConfig{}); !errors.Is(err, task.ErrNoTask) {
		t.Errorf("Dial: %v", err)
	}
	ln, err := cm.Listen(dev, netip.AddrPortFrom(world.Addr(0), service), cm.ListenConfig{})
	must(t, err)
	if _, err := ln.Accept(t.Context()); !errors.Is(err, task.ErrNoTask) {
		t.Errorf("Accept: %v", err)
	}
	must(t, ln.Close())
}

// TestDeviceTellsAllPeers: a device that is closed says so to the peers of all
// its connections, and not only to as many as its management queue pair sends
// to at once. They hear it in the same order each time.
func TestDeviceTellsAllPeers(t *testing.T) {
	t.Parallel()
	const conns = 150
	play := func() (digest uint64) {
		w := newWorld(t, world.Config{Network: star(3)})
		begun, told, latest := 0, 0, time.Duration(0)
		must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
			ln, err := cm.Listen(dev, netip.AddrPortFrom(world.Addr(0), service), cm.ListenConfig{})
			if err != nil {
				return err
			}
			s, err := newSide(dev, make([]byte, 64))
			if err != nil {
				return err
			}
			for range conns {
				r, err := ln.Accept(ctx)
				if err != nil {
					return err
				}
				q, err := s.pd.CreateQP(verbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq, MaxSendWR: 1, MaxRecvWR: 1})
				if err != nil {
					return err
				}
				if _, err := r.Accept(ctx, q, cm.AcceptConfig{}); err != nil {
					return err
				}
			}
			if err := w.Sleep(ctx, time.Millisecond); err != nil {
				return err
			}
			latest = w.Now()
			return dev.Close()
		}))
		for i := range 2 {
			must(t, w.Go(1+i, func(ctx context.Context, dev *verbs.Device) error {
				s, err := newSide(dev, make([]byte, 64))
				if err != nil {
					return err
				}
				for range conns / 2 {
					q, err := s.pd.CreateQP(verbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq, MaxSendWR: 1, MaxRecvWR: 1})
					if err != nil {
						return err
					}
					c, err := cm.Dial(ctx, q, netip.AddrPortFrom(world.Addr(0), service), cm.DialConfig{})
					if err != nil {
						return err
					}
					begun++
					verbs.HCA(dev).Tasks().Go(func() {
						if err := c.Wait(ctx); errors.Is(err, cm.ErrDisconnected) {
							told++
							latest = w.Now()
						}
					})
				}
				return nil
			}))
		}
		must(t, w.RunFor(20*time.Millisecond))
		if begun != conns || told != conns {
			t.Errorf("of %d connections %d have learned that the peer's device is closed", begun, told)
		}
		t.Logf("the last one at %v", latest)
		return w.Digest()
	}
	if first, second := play(), play(); first != second {
		t.Errorf("the digests are %x and %x", first, second)
	}
}
