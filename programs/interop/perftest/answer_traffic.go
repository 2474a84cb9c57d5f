package perftest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/work"
	"github.com/gosoftroce/rocev2/verbs"
)

// traffic takes completions, finds out what they mean, and does what the client
// waits for. It ends with g.
func (a *answerer) traffic(g *work.Guard) error {
	var wc [batch]verbs.WC
	n, at, err := a.decide(g, wc[:])
	if err != nil {
		return err
	}
	if a.echo == (Test{Write, Latency}) {
		return a.writes(g)
	}
	a.meter.size = a.bytes
	a.meter.begin(a.tasks.Now())
	a.times = NewHistogram()
	for {
		messages := uint64(0)
		for k := range wc[:n] {
			if err := a.take(&wc[k]); err != nil {
				return err
			}
			if wc[k].ID&recvFlag != 0 {
				messages++
			}
		}
		if now := a.tasks.Now(); messages > 0 {
			a.meter.add(now, messages)
			if a.echo.Kind == Latency && !at.IsZero() {
				a.times.Add(now.Sub(at))
			}
			at = now
		}
		g.Add(n)
		if n, err = a.res.w.Next(g, wc[:]); err != nil {
			return err
		}
	}
}

// decide waits until it is known what the client waits for. It returns the
// completions that have not been taken.
func (a *answerer) decide(g *work.Guard, wc []verbs.WC) (n int, at time.Time, err error) {
	var quiet uint64 // packets when the last handshake was seen
	var seen int64
	for {
		limit, cancel := a.tasks.WithTimeout(g.Ctx, decideTick)
		k, err := a.res.w.CQ.Wait(limit, wc[n:])
		cancel()
		if err != nil && (g.Ctx.Err() != nil || limit.Err() == nil) {
			return 0, at, g.Err(err)
		}
		now := a.tasks.Now()
		if n += k; k > 0 {
			a.bytes, at = int(wc[0].ByteLen)-a.res.grh, now
		}
		switch handshakes := a.replies.handshakes.Load(); {
		case n > 1:
			a.known = true
			return n, at, nil
		case n == 1 && quiet != a.res.received():
			quiet, at = a.res.received(), now // a part of the next message
		case n == 1 && now.Sub(at) >= max(secondLimit, a.replies.slowness()):
			a.known, a.echo = true, Test{Send, Latency}
			return n, time.Time{}, nil
		case n > 0:
		case handshakes != seen:
			seen, quiet = handshakes, a.res.received()
		case a.waitsForWrite(seen, quiet, now):
			a.known, a.echo = true, Test{Write, Latency}
			return 0, at, nil
		}
	}
}

// writeHandshakes is how many handshakes there are before write_lat begins.
const writeHandshakes = 4

// waitsForWrite reports whether the client is one of write_lat that waits. Of
// the others those of SEND begin at once, and so do those of READ and atomics,
// which also announce room for more than one; write_bw has a handshake less.
func (a *answerer) waitsForWrite(handshakes int64, quiet uint64, now time.Time) bool {
	list := a.res.lanes()
	return handshakes == writeHandshakes && len(list) == 1 && list[0].remote.OutReads <= 1 && list[0].remote.RKey != 0 && a.cfg.Service != interop.UD &&
		a.res.received() == quiet && a.replies.sinceLast(now) >= max(firstLimit, a.replies.slowness())
}

// take handles a completion: a receive is posted again, and answered in a
// latency test.
func (a *answerer) take(wc *verbs.WC) error {
	if wc.Status != verbs.StatusSuccess {
		return &interop.CompletionError{Doing: fmt.Sprintf("%v for a client", a.echo), Done: uint64(a.meter.count), WC: *wc}
	}
	if wc.ID&recvFlag == 0 {
		a.pending--
		return nil
	}
	i := int(wc.ID &^ recvFlag)
	l := a.res.lanes()[i]
	if l.owed++; l.owed >= batch || a.echo.Kind == Latency {
		if err := a.res.repost(i, l); err != nil {
			return err
		}
	}
	if a.echo.Kind != Latency {
		return nil
	}
	a.bytes = int(wc.ByteLen) - a.res.grh
	a.due++
	return a.echoes(l)
}

// echoes sends the answers that are due. Acknowledgements of earlier ones may
// come after the client's next messages.
func (a *answerer) echoes(l *answerLane) error {
	if a.due > 0 && a.pending >= answerSends {
		// It sends without waiting for answers, and has no receives for
		// them: it is send_bw after all, and was slow in the beginning.
		a.echo, a.due = Test{Send, Bandwidth}, 0
		return nil
	}
	for ; a.due > 0; a.due-- {
		err := l.post(verbs.SendWR{Opcode: verbs.OpSend, Signaled: true, SGList: []verbs.SGE{a.res.mr.Slice(a.res.grh, a.bytes)}})
		if err != nil {
			return err
		}
		a.pending++
	}
	return nil
}

// writes is the server of write_lat, which begins.
func (a *answerer) writes(g *work.Guard) error {
	l := a.res.lanes()[0]
	source := a.res.source()
	for i := range source {
		source[i] = 1
	}
	if err := a.write(g, l, blockSize); err != nil {
		return err
	}
	if err := a.learnSize(g, l); err != nil {
		return err
	}
	a.meter.size = a.bytes
	a.times = NewHistogram()
	last := a.tasks.Now()
	a.meter.begin(last)
	for round := 2; ; round++ {
		source[a.bytes-1] = byte(round)
		if err := a.write(g, l, a.bytes); err != nil {
			return err
		}
		if err := a.watch(g, byte(round)); err != nil {
			return err
		}
		now := a.tasks.Now()
		a.times.Add(now.Sub(last))
		a.meter.add(now, 1)
		last = now
		g.Add(1)
	}
}

// write writes the first n bytes of the source to the client.
func (a *answerer) write(g *work.Guard, l *answerLane, n int) error {
	err := l.post(verbs.SendWR{
		Opcode: verbs.OpWrite, Signaled: true, SGList: []verbs.SGE{a.res.mr.Slice(a.res.room, n)},
		Remote: verbs.RemoteAddr{Addr: l.remote.VAddr, RKey: l.remote.RKey},
	})
	if err != nil {
		return err
	}
	var wc [1]verbs.WC
	if _, err := a.res.w.Next(g, wc[:]); err != nil {
		return err
	}
	if wc[0].Status != verbs.StatusSuccess {
		if g.Ctx.Err() != nil {
			return context.Cause(g.Ctx) // the client left
		}
		return &interop.CompletionError{Doing: "write_lat for a client", Done: uint64(a.meter.count), WC: wc[0]}
	}
	return nil
}

// errSize says that a client of write_lat has larger messages than can be found
// out.
var errSize = errors.New("the client waits, and does not answer a WRITE of 4096 bytes: write_lat with larger messages, or over another service, must be named to the server")

// sizeLimit bounds the wait for the client's first WRITE.
const sizeLimit = 5 * time.Second

// learnSize waits for the client's first WRITE, and sees by it how large its
// messages are: the memory after it is still zero. A message may come in
// several packets, so it counts when no more have come for a moment.
func (a *answerer) learnSize(g *work.Guard, l *answerLane) error {
	start := a.tasks.Now()
	var packets uint64
	size := 0
	for {
		n, p := a.res.written(), l.Received()
		if n > 0 && n == size && p == packets && a.res.mr.Bytes()[n-1] == 1 {
			a.bytes = n
			return nil
		}
		size, packets = n, p
		if a.tasks.Sleep(g.Ctx, decideTick) != nil {
			return g.Err(verbs.ErrClosed)
		}
		if size == 0 && a.tasks.Since(start) > min(sizeLimit, a.cfg.HandshakeTimeout) {
			return errSize
		}
		// Polling is what moves packets in.
		var wc [1]verbs.WC
		a.res.w.CQ.Poll(wc[:])
	}
}

// watch waits for a value of the last byte of a message.
func (a *answerer) watch(g *work.Guard, want byte) error {
	var wc [1]verbs.WC
	var start time.Time
	at := a.bytes - 1
	for i := 1; ; i++ {
		v, err := a.res.mr.Load64(at &^ 7)
		if err != nil {
			return err
		}
		var b [8]byte
		binary.NativeEndian.PutUint64(b[:], v)
		if b[at&7] == want {
			return nil
		}
		a.res.w.CQ.Poll(wc[:]) // moves packets in
		if i%looksPerYield != 0 {
			continue
		}
		if g.Stopped() {
			return g.Err(verbs.ErrClosed)
		}
		runtime.Gosched()
		switch now := a.tasks.Now(); {
		case start.IsZero():
			start = now
		case now.Sub(start) > watchLimit:
			a.tasks.Sleep(context.Background(), watchNap)
		}
	}
}

// settle waits for what is under way when a client is done whose service does
// not confirm anything: until nothing comes for a moment.
func (a *answerer) settle() {
	var wc [batch]verbs.WC
	for n := a.res.received(); ; {
		a.tasks.Sleep(context.Background(), 2*decideTick)
		a.res.w.CQ.Poll(wc[:]) // moves packets in
		m := a.res.received()
		if m == n {
			return
		}
		n = m
	}
}

// test says what the client ran, as far as its traffic shows.
func (a *answerer) test() Test {
	if a.known {
		return a.echo
	}
	t := Test{Atomic, Latency}
	var tx, rx, messages uint64
	for _, l := range a.res.list {
		s := l.Lanes[0].Recv.Stats()
		tx, rx, messages = tx+s.TxBytes, rx+s.RxBytes, messages+s.RecvDone
	}
	switch {
	case messages > 0: // a short test, over before it was looked at
		return Test{Send, Bandwidth}
	case tx > 0:
		t.Verb = Read
	case rx > 0:
		t.Verb = Write
	}
	if a.replies.reported != nil {
		t.Kind = Bandwidth
	}
	return t
}

// result is what was measured here, or what the client reports.
func (a *answerer) result() Result {
	var r Result
	switch {
	case a.replies.reported != nil:
		r = resultOf(*a.replies.reported)
	case a.known:
		r = a.meter.result()
		if a.times != nil && a.echo.Kind == Latency {
			l := a.times.Latencies(2)
			r.Latency = &l
		}
	}
	r.Test, r.Service, r.Role, r.QPs, r.MTU = a.test(), a.cfg.Service, interop.Server, len(a.res.list), a.res.mtu.Bytes()
	return r
}
