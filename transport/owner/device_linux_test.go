//go:build !portable

package owner_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/verbs"
)

const messageLen = 40000

// end is one side of a connection, with memory to send from and to receive
// into.
type end struct {
	pd      *verbs.PD
	cq      *verbs.CQ
	qp      *verbs.QP
	out, in *verbs.MR
}

func newEnd(dev *verbs.Device) (e *end, err error) {
	e = &end{}
	if e.pd, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	if e.cq, err = dev.CreateCQ(64); err != nil {
		return nil, err
	}
	if e.out, err = e.pd.RegisterMemory(make([]byte, messageLen), verbs.LocalWrite); err != nil {
		return nil, err
	}
	if e.in, err = e.pd.RegisterMemory(make([]byte, messageLen), verbs.LocalWrite); err != nil {
		return nil, err
	}
	e.qp, err = e.pd.CreateQP(verbs.QPConfig{SendCQ: e.cq, RecvCQ: e.cq, MaxSendWR: 8, MaxRecvWR: 8})
	return e, err
}

func (e *end) connect(peer verbs.Endpoint) error {
	if err := e.qp.Connect(context.Background(), peer); err != nil {
		return err
	}
	return e.receive()
}

func (e *end) receive() error {
	return e.qp.PostRecv(verbs.RecvWR{ID: 1, SGList: []verbs.SGE{e.in.Slice(0, messageLen)}})
}

// fill writes what message i of a sender has.
func fill(b []byte, sender, i int) {
	for k := range b {
		b[k] = byte(k*7 + k>>8 + sender*31 + i)
	}
}

// exchange sends message i, receives that of the peer, and checks each byte.
func (e *end) exchange(self, peer, i int) error {
	fill(e.out.Bytes(), self, i)
	if err := e.qp.PostSend(verbs.SendWR{ID: 2, Opcode: verbs.OpSend, Signaled: true, SGList: []verbs.SGE{e.out.Slice(0, messageLen)}}); err != nil {
		return err
	}
	for sent, got := false, false; !sent || !got; {
		var wc [1]verbs.WC
		if _, err := e.cq.Wait(context.Background(), wc[:]); err != nil {
			return err
		}
		if wc[0].Status != verbs.StatusSuccess {
			return fmt.Errorf("completion %d: %v", wc[0].ID, wc[0].Status)
		}
		if wc[0].ID == 2 {
			sent = true
		} else {
			got = true
		}
	}
	want := make([]byte, messageLen)
	if fill(want, peer, i); !bytes.Equal(e.in.Bytes(), want) {
		return errors.New("the message has other bytes than were sent")
	}
	return e.receive() // not before: the peer may be at the next message already
}

func (e *end) close() { e.qp.Close() }

func between(t *testing.T, a, b *verbs.Device, rounds int) {
	t.Helper()
	p, err := newEnd(a)
	if err != nil {
		t.Fatal(err)
	}
	q, err := newEnd(b)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	defer q.close()
	if err := errors.Join(p.connect(q.qp.Endpoint()), q.connect(p.qp.Endpoint())); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < rounds && err == nil; i++ {
			err = p.exchange(1, 2, i)
		}
		done <- err
	}()
	for i := range rounds {
		if err := q.exchange(2, 1, i); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func openOn(t *testing.T, addr string, c verbs.Config) *verbs.Device {
	t.Helper()
	dev, err := verbs.OpenAddr(netip.MustParseAddr(addr), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// Devices on one address exchange messages, each with its part of the port.
func TestDevicesOnOneAddress(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	for _, addr := range []string{"127.0.0.1", "::1"} {
		a := openOn(t, addr, verbs.Config{Owner: true})
		b := openOn(t, addr, verbs.Config{Shards: 2, Loopback: true})
		if n, most := a.Query().MaxQP, (1<<24)/256; n <= 1024 || n >= most {
			t.Errorf("MaxQP is %d, and the device has %d numbers", n, most)
		}
		between(t, a, b, 20)
		between(t, b, a, 20)
		between(t, b, b, 20)
		if err := errors.Join(b.Close(), a.Close()); err != nil {
			t.Error(err)
		}
	}
}

// When the owner ends, a device fails at once: what was posted completes, and a
// new owner has the port.
func TestOwnerEnds(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	const addr = "127.0.0.1"
	a := openOn(t, addr, verbs.Config{Owner: true})
	b := openOn(t, addr, verbs.Config{})
	p, err := newEnd(b)
	if err != nil {
		t.Fatal(err)
	}
	q, err := newEnd(a)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(q.connect(p.qp.Endpoint()), p.connect(q.qp.Endpoint())); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	e, err := b.AsyncEvent(t.Context())
	if err != nil || e.Event != verbs.EventDeviceFatal {
		t.Errorf("event %v, %v", e.Event, err)
	}
	var wc [1]verbs.WC
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for n := p.cq.Poll(wc[:]); n == 0; n = p.cq.Poll(wc[:]) {
		if ctx.Err() != nil {
			t.Fatal("the receive does not complete")
		}
	}
	if wc[0].Status != verbs.StatusWRFlushErr {
		t.Errorf("the receive completes with %v", wc[0].Status)
	}
	if err := b.Close(); err != nil {
		t.Errorf("a device that has failed closes with %v", err)
	}
	if _, err := verbs.OpenAddr(netip.MustParseAddr(addr), verbs.Config{Leased: true}); !errors.Is(err, verbs.ErrNoOwner) {
		t.Errorf("a lease without an owner: %v", err)
	}
	c := openOn(t, addr, verbs.Config{Owner: true})
	d := openOn(t, addr, verbs.Config{})
	between(t, c, d, 3)
}
