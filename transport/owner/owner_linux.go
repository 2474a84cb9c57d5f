//go:build !portable

package owner

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/loglimit"
	"github.com/gosoftroce/rocev2/transport/guard"
	"github.com/gosoftroce/rocev2/transport/lease"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// Owner owns the port of an address. Its methods may be called from any
// goroutine.
type Owner struct {
	cfg   Config
	slots *udp.Slots
	log   *slog.Logger
	limit loglimit.Limit // of what strangers can have logged

	doors    []*door // where processes ask
	guests   guests
	exchange *exchange
	wg       sync.WaitGroup
	serving  sync.WaitGroup // of connections

	mu      sync.Mutex // guards what follows
	table   table
	tenants map[*tenant]struct{}
	looking bool // a timer looks at the slots that rest
	timer   *time.Timer
	granted uint64
	serial  uint32 // of the latest lease
	refused uint64
	closed  bool
}

// Bounds of Config.
const (
	mostSlots, leastSlots = 256, 8
	fewSlots              = 64
	// manyFiles is what a process may have that binds 256 sockets, with
	// two more for each lease.
	manyFiles = 1024
	// mostBuffer is what a leaseholder may ask for, unless Quota says
	// something else.
	mostBuffer = 64 << 20
)

// DefaultSlots returns what Config.Slots of 0 stands for.
func DefaultSlots() int {
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil && files.Cur < manyFiles {
		return fewSlots
	}
	return mostSlots
}

func (c *Config) fill() error {
	if c.Slots == 0 {
		c.Slots = DefaultSlots()
	}
	if c.Slots < leastSlots || c.Slots > mostSlots || c.Slots&(c.Slots-1) != 0 {
		return fmt.Errorf("owner: Config.Slots is %d; it must be a power of two from %d to %d, or 0", c.Slots, leastSlots, mostSlots)
	}
	c.Quota.RecvBuffer = cmp.Or(c.Quota.RecvBuffer, mostBuffer)
	c.Quota.SendBuffer = cmp.Or(c.Quota.SendBuffer, mostBuffer)
	c.Quota.MADs = cmp.Or(c.Quota.MADs, 20000)
	c.Quota.Leases = cmp.Or(c.Quota.Leases, c.Slots)
	if c.Changed == nil {
		c.Changed = func() {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Listen binds the port of an address, and leases it to processes that ask. It
// fails if another process has the port: the error wraps a *udp.OpenError. When
// an owner has ended just now, its leaseholders still have the port for a
// moment, which Listen waits for.
func Listen(c Config) (*Owner, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	o := &Owner{cfg: c, tenants: map[*tenant]struct{}{}}
	var err error
	if o.slots, err = openSlots(&c); err != nil {
		return nil, fmt.Errorf("owner: %v: %w", c.Addr, err)
	}
	o.log = c.Log.With("address", o.Addr())
	o.table = newTable(o.slots.Len())
	o.timer = time.AfterFunc(time.Hour, o.look)
	if o.exchange, err = newExchange(o); err == nil {
		err = o.openDoors()
	}
	if err != nil {
		o.Close()
		return nil, fmt.Errorf("owner: %v: %w", c.Addr, err)
	}
	o.wg.Go(o.exchange.run)
	for _, d := range o.doors {
		o.wg.Go(func() { o.accept(d) })
	}
	return o, nil
}

// Addr returns the address, with its zone if it is link-local.
func (o *Owner) Addr() netip.Addr { return o.slots.Local().Addr() }

// Socket returns the path of the Unix socket where processes ask.
func (o *Owner) Socket() string { return o.doors[0].socket() }

// Stats returns the counters.
func (o *Owner) Stats() Stats {
	o.mu.Lock()
	s := Stats{
		Leases: len(o.tenants), Resting: o.table.count(slotResting), Free: o.table.count(slotFree),
		Granted: o.granted, Refused: o.refused,
	}
	o.mu.Unlock()
	o.exchange.stats(&s)
	return s
}

// tellMost is how long Leases waits for leaseholders that are asked.
const tellMost = 200 * time.Millisecond

// GuardCounters returns what the owner has sealed, opened and dropped of
// management datagrams, its own and those of leaseholders. secured is false
// where the port is not secured.
func (o *Owner) GuardCounters() (c guard.Counters, secured bool) {
	g, secured := o.exchange.link.(*guard.Link)
	if secured {
		c = g.Counters()
	}
	return c, secured
}

// Leases returns the leases, in the order of their slots. It asks the
// leaseholders for their counters, and waits for those that answer at once.
func (o *Owner) Leases() []Lease {
	o.mu.Lock()
	var all []*tenant
	for t := range o.tenants {
		all = append(all, t)
	}
	o.mu.Unlock()
	late := time.NewTimer(tellMost)
	defer late.Stop()
	var told []<-chan struct{}
	for _, t := range all {
		told = append(told, t.ask())
	}
	for _, c := range told {
		select {
		case <-c:
			continue
		case <-late.C:
		}
		break
	}
	list := make([]Lease, 0, len(all))
	for _, t := range all {
		l := t.describe()
		o.exchange.describe(t, &l)
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b Lease) int { return cmp.Compare(a.Slot, b.Slot) })
	return list
}

// look frees the slots that have rested.
func (o *Owner) look() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	o.looking = o.table.look(time.Now(), o.slots.Drops)
	if o.looking {
		o.timer.Reset(lookEvery)
	}
}

// rest ends the use of slots. What comes for them is dropped from now on. Those
// of a lease that was idle are free at once.
func (o *Owner) rest(first, n int, idle bool) {
	for i := first; i < first+n; i++ {
		if err := o.slots.Idle(i); err != nil {
			o.log.Warn("the kernel does not drop what comes to a slot without a lease", "slot", i, "err", err)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if idle {
		o.table.set(first, n, slot{since: time.Now()})
		return
	}
	o.table.rest(time.Now(), first, n, o.slots.Drops)
	if !o.looking && !o.closed {
		o.looking = true
		o.timer.Reset(lookEvery)
	}
}

// Close ends all leases and gives back the port. Leaseholders' devices fail,
// and their peers are told. It waits for the owner's goroutines. A second Close
// returns an error.
func (o *Owner) Close() error {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return errClosed
	}
	o.closed = true
	for t := range o.tenants {
		t.conn.Close()
	}
	o.mu.Unlock()
	o.timer.Stop()
	var errs []error
	for _, d := range o.doors {
		errs = append(errs, d.close())
	}
	o.guests.closeAll()
	if o.exchange != nil {
		o.serving.Wait()
		o.exchange.farewell()
		errs = append(errs, o.exchange.close())
	}
	o.wg.Wait()
	errs = append(errs, o.slots.Close())
	return errors.Join(errs...)
}

var errClosed = fmt.Errorf("owner: %w", os.ErrClosed)

// refusal is what a process is told that gets nothing.
func refusal(reason lease.Reason, format string, args ...any) *lease.Refusal {
	return &lease.Refusal{Reason: reason, Text: fmt.Sprintf(format, args...)}
}
