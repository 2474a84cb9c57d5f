package faces

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// base is what all sides have: a device, and a face on it.
type base struct {
	cfg  Config
	dev  *verbs.Device // nil for TCP and TLS
	face face
	peer string // where the other side listens

	before pair.Costs
	ctx    context.Context // ends with the process at the latest
	cancel context.CancelFunc

	mu     sync.Mutex
	closed []func() // what Close does before it closes the device
}

func newBase(c Config) *base {
	b := &base{cfg: c}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// Hello opens the device; the passive side listens and says where.
func (b *base) Hello() (any, error) {
	if b.cfg.Face != TCP && b.cfg.Face != TLS {
		addr, err := netip.ParseAddr(b.cfg.Addr)
		if err != nil {
			return nil, err
		}
		if b.dev, err = verbs.OpenAddr(addr, verbs.Config{}); err != nil {
			return nil, err
		}
	}
	var err error
	if b.face, err = newFace(b); err != nil || b.cfg.Active {
		return "", err
	}
	return b.face.listen()
}

// Connect takes where the peer listens.
func (b *base) Connect(raw json.RawMessage) error { return json.Unmarshal(raw, &b.peer) }

// onClose has Close do something first.
func (b *base) onClose(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = append(b.closed, f)
}

// Close ends everything.
func (b *base) Close() error {
	b.cancel()
	b.mu.Lock()
	for _, f := range b.closed {
		f()
	}
	b.mu.Unlock()
	if b.dev == nil {
		return nil
	}
	return b.dev.Close()
}

func newResult() pair.Result {
	return pair.Result{Values: map[string]float64{}, Counts: map[string]uint64{}, Errors: map[string]uint64{}}
}

// measured runs f until the window is over. It returns how often f ran within
// the window, and for how long. f runs n times between two looks at the clock.
func (b *base) measured(n int, f func() error) (runs int, took time.Duration, err error) {
	begin := time.Now()
	warm := true
	for {
		for range n {
			if err := f(); err != nil {
				return runs, 0, err
			}
		}
		now := time.Now()
		switch {
		case !warm:
			runs += n
			if took = b.before.Until(now); took >= b.cfg.Measure {
				return runs, took, nil
			}
		case now.Sub(begin) >= b.cfg.Warm:
			warm = false
			b.before = pair.CostsNow()
		}
	}
}

// mishaps adds what went wrong on a device: see package ours. Connections come
// and go in these tests, so a late packet may find none.
func (b *base) mishaps(r *pair.Result) {
	if b.dev == nil {
		return
	}
	add := func(m map[string]uint64, name string, n uint64) {
		if n > 0 {
			m[name] += n
		}
	}
	q := b.dev.QPStats()
	add(r.Errors, "retransmissions", q.Retransmits-q.SpuriousRetransmits)
	add(r.Counts, "spurious retransmissions", q.SpuriousRetransmits)
	add(r.Errors, "ack timeouts", q.Timeouts)
	add(r.Errors, "completion overflows", q.CQOverflows)
	add(r.Counts, "RNR waits", q.RNRWaits)
	add(r.Counts, "window cuts", q.WindowCuts)
	add(r.Counts, "credit stalls", q.CreditStalls)
	st := b.dev.Stats()
	for reason, n := range st.Drops {
		if reason == "duplicate" || reason == "stale" || reason == "unknown_qpn" || reason == "state" {
			add(r.Counts, "dropped: "+reason, n)
			continue
		}
		add(r.Errors, "dropped: "+reason, n)
	}
	add(r.Errors, "bad ICRC", st.Link.RxBadICRC)
	add(r.Errors, "malformed", st.Link.RxMalformed)
	add(r.Errors, "send errors", st.Link.TxErrors)
	add(r.Errors, "asynchronous events dropped", st.EventsDropped)
	add(r.Errors, "receive buffer overflows", st.Link.RxOverflow)
	c := cm.ReadStats(b.dev)
	add(r.Errors, "CM: malformed", c.Malformed)
	add(r.Errors, "CM: stale", c.Stale)
	add(r.Counts, "CM: sent again", c.Resent)
	add(r.Counts, "CM: duplicates", c.Duplicates)
	add(r.Counts, "CM: unexpected", c.Unexpected)
	add(r.Counts, "CM: overloaded", c.Overloaded)
	add(r.Counts, "CM: evicted", c.Evicted)
}

// accepting hands every connection that comes to f, on a goroutine of its own,
// until the side is closed.
func (b *base) accepting(f func(channel)) {
	for {
		c, err := b.face.accept(b.ctx)
		if err != nil {
			if b.ctx.Err() != nil {
				return
			}
			panic(fmt.Sprintf("accepting: %v", err)) // the parent shows it
		}
		go f(c)
	}
}
