// Command walk does what package pathlength counts: a program polls, and sends
// WRITEs of 8 bytes by UDP to a peer that polls. It is built with -cover, and
// leaves the counters of each part of the way in a directory of its own.
//
//	walk DIR
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/coverage"
	"strconv"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

const (
	// rounds is how often each part is counted: now and then another
	// goroutine of a device runs at the same time.
	rounds = 20
	// before is for how long messages go before one is counted: by then the
	// receivers of the devices leave receiving to the program.
	before = 60 * time.Millisecond
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "walk:", err)
		os.Exit(1)
	}
}

// end is a device and what it has for one connection.
type end struct {
	dev *verbs.Device
	cq  *verbs.CQ
	qp  *verbs.QP
	mr  *verbs.MR
}

func open(addr string) (e end, err error) {
	if e.dev, err = verbs.Open(addr); err != nil {
		return e, err
	}
	pd, err := e.dev.AllocPD()
	if err != nil {
		return e, err
	}
	if e.mr, err = pd.RegisterMemory(make([]byte, 64), verbs.LocalWrite|verbs.RemoteWrite); err != nil {
		return e, err
	}
	if e.cq, err = e.dev.CreateCQ(64); err != nil {
		return e, err
	}
	e.qp, err = pd.CreateQP(verbs.QPConfig{SendCQ: e.cq, RecvCQ: e.cq})
	return e, err
}

func run(dir string) error {
	network := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), rand.IntN(256))
	requester, err := open(network + "1")
	if err != nil {
		return err
	}
	defer requester.dev.Close()
	responder, err := open(network + "2")
	if err != nil {
		return err
	}
	defer responder.dev.Close()
	ctx := context.Background()
	if err := requester.qp.Connect(ctx, responder.qp.Endpoint()); err != nil {
		return err
	}
	if err := responder.qp.Connect(ctx, requester.qp.Endpoint()); err != nil {
		return err
	}
	w := &walk{requester: requester, responder: responder}
	for part := range 3 {
		for i := 0; i < rounds; {
			for begin := time.Now(); time.Since(begin) < before; {
				if _, err := w.message(-1, ""); err != nil {
					return err
				}
			}
			counted, err := w.message(part, filepath.Join(dir, strconv.Itoa(part), strconv.Itoa(i)))
			if err != nil {
				return err
			}
			if counted {
				i++
			}
		}
	}
	return nil
}

// walk sends messages.
type walk struct {
	requester, responder end
	sent                 uint64
}

// received returns how many packets a device has received.
func (e *end) received() uint64 { return e.dev.Stats().Link.RxPackets }

// message sends one, and counts one part of its way: 0 is the post, 1 the poll
// in which the peer receives it, 2 the poll that finds the completion. It
// reports false if that was not one poll, or if the device's own receiver was
// faster.
func (w *walk) message(part int, dir string) (counted bool, err error) {
	w.sent++
	wr := verbs.SendWR{ID: w.sent, Opcode: verbs.OpWrite, SGList: []verbs.SGE{w.requester.mr.Slice(0, 8)},
		Remote: w.responder.mr.Remote().At(0), Signaled: true}
	var wc [1]verbs.WC
	n := 0
	r, p := &w.requester, &w.responder
	answered, asked, answers := p.dev.Stats().Link.TxPackets, p.received(), r.received()
	steps := [3]struct {
		do          func() error
		fresh, done func() bool // what it is to receive is not received; it has done all
	}{
		{func() error { return r.qp.PostSend(wr) }, func() bool { return true }, func() bool { return true }},
		{func() error { p.cq.Poll(wc[:]); return nil }, func() bool { return p.received() == asked }, func() bool { return p.dev.Stats().Link.TxPackets > answered }},
		{func() error { n = r.cq.Poll(wc[:]); return nil }, func() bool { return r.received() == answers }, func() bool { return n == 1 }},
	}
	for i, step := range steps {
		for done := false; !done; done = step.done() {
			if i != part {
				if err := step.do(); err != nil {
					return false, err
				}
				continue
			}
			counted = step.fresh()
			if err := coverage.ClearCounters(); err != nil {
				return false, err
			}
			if err := step.do(); err != nil {
				return false, err
			}
			if err := write(dir); err != nil {
				return false, err
			}
		}
	}
	if wc[0].Status != verbs.StatusSuccess {
		return false, fmt.Errorf("a WRITE completes with %v", wc[0].Status)
	}
	return counted, nil
}

// write leaves the counters in a directory, in place of what it has.
func write(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := coverage.WriteCountersDir(dir); err != nil {
		return err
	}
	return coverage.WriteMetaDir(dir)
}
