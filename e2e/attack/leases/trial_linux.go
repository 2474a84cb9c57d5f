//go:build !portable

package leases

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/e2e/attack"
	"github.com/gosoftroce/rocev2/e2e/attack/victim"
	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/transport/lease"
	"github.com/gosoftroce/rocev2/verbs"
)

// Addresses. The network is the process's own.
const (
	victimAddr  = "127.197.0.1"
	strangeAddr = "127.196.0.9" // of packets from the network
)

const (
	giveUpAfter = 2 * time.Minute // what must happen is then taken for what does not
	pollTime    = time.Millisecond
	alone       = 50  // messages without an attack
	mostMore    = 2.0 // times the packets that they take
	keptMiB     = 96  // that the owner has more, for what it has seen
	keptThreads = 16
)

// trial is one attack under way.
type trial struct {
	Scale
	ctx     context.Context
	daemon  *victim.Daemon
	owner   owned  // the daemon
	socket  string // of the owner
	honest  *honest
	traffic *traffic
	wire    attack.Wire
	forger
	result attack.Result
}

// aborted carries an error of the lab itself up to Run.
type aborted struct{ err error }

func (t *trial) check(err error) {
	if err != nil {
		panic(aborted{err})
	}
}

func (t *trial) must(ok bool, format string, args ...any) {
	if !ok {
		t.result.Broken = append(t.result.Broken, fmt.Sprintf(format, args...))
	}
}

func (t *trial) figure(name string, v float64, unit string) {
	t.result.Figures = append(t.result.Figures, attack.Figure{Name: name, Value: v, Unit: unit})
}

// happens polls until cond holds, and reports whether it did.
func (t *trial) happens(cond func() bool) bool {
	for end := time.Now().Add(giveUpAfter); !cond(); time.Sleep(pollTime) {
		if t.ctx.Err() != nil || time.Now().After(end) {
			return false
		}
	}
	return true
}

// Run runs an attack on a daemon of its own. An error means that the lab did
// not come about; what the attack has broken is in the Result.
func (a *Attack) Run(ctx context.Context, o Options) (r attack.Result, err error) {
	t := &trial{Scale: o.Scale, ctx: ctx, forger: forger{rand.New(rand.NewPCG(o.Seed, 1))}}
	t.result = attack.Result{Name: a.Name, What: a.What, Must: a.Must + "; " + Always}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case aborted:
			err = fmt.Errorf("attack %s: %w", a.Name, p.err)
		default:
			panic(p)
		}
		r = t.result
	}()
	t.open(&o)
	defer t.close()
	before, err := t.owner.look()
	t.check(err)
	packets, err := t.honest.talk(ctx, alone)
	t.check(err)
	t.traffic = t.honest.begin(ctx)
	a.run(t)
	t.judge(t.traffic.end(), packets)
	t.compare(before)
	return t.result, nil
}

func (t *trial) open(o *Options) {
	addr := netip.MustParseAddr(victimAddr)
	var err error
	t.daemon, err = victim.StartDaemon(o.Daemon, victimAddr, strangeAddr)
	t.check(err)
	t.owner = owned{t.daemon}
	if t.wire, err = attack.OpenRaw(); err == nil {
		t.honest, err = startHonest(t.ctx, addr)
	}
	if err == nil {
		t.socket, err = findSocket(addr)
	}
	if err != nil {
		t.close()
		t.check(err)
	}
}

func (t *trial) close() {
	if t.honest != nil {
		t.honest.close()
	}
	if t.wire != nil {
		t.wire.Close()
	}
	t.daemon.Stop()
}

// findSocket returns the path of the owner's socket.
func findSocket(addr netip.Addr) (string, error) {
	err := error(lease.ErrNoOwner)
	for _, dir := range lease.UserDirs() {
		path := dir + "/" + lease.SocketName(addr, 0)
		c, e := lease.Dial(path)
		if e == nil {
			return path, c.Close()
		}
		err = errors.Join(err, e)
	}
	return "", err
}

// more reports whether an attack goes on: it has not done so much yet, or the
// honest have not.
func (t *trial) more(done, least int) bool {
	t.check(t.ctx.Err())
	r := t.traffic
	if r.failed.Load() {
		return false
	}
	return done < least || r.rounds.Load() < int64(t.Rounds) || r.dials.Load() < int64(t.Dials)
}

// judge says what the honest had of the attack.
func (t *trial) judge(err error, packets float64) {
	t.must(err == nil, "the honest leaseholders: %v", err)
	r := t.traffic
	t.must(r.packets <= mostMore*packets, "%.1f packets for a message, and %.1f without the attack", r.packets, packets)
	t.figure("rounds", float64(r.rounds.Load()), "")
	t.figure("dials", float64(r.dials.Load()), "")
	t.figure("packets for a round", 100*r.packets/packets, "%")
}

// compare says what the owner has kept of an attack.
func (t *trial) compare(before state) {
	_, alive := t.daemon.Memory()
	if t.must(alive, "the owner has ended"); !alive {
		return
	}
	var now state
	same := t.happens(func() bool {
		var err error
		now, err = t.owner.look()
		t.check(err)
		return now.leases <= before.leases && now.files <= before.files
	})
	t.must(same, "the owner has %d leases and %d files, and had %d and %d", now.leases, now.files, before.leases, before.files)
	t.must(now.threads <= before.threads+keptThreads, "the owner has %d threads, and had %d", now.threads, before.threads)
	t.must(now.memory <= before.memory+keptMiB, "the owner has %.0f MiB, and had %.0f", now.memory, before.memory)
	t.figure("memory", now.memory-before.memory, "MiB more")
	var last error
	t.must(t.happens(func() bool { last = t.newLease(); return last == nil }), "a new lease: %v", last)
}

// newLease takes a lease, and talks with another one by it.
func (t *trial) newLease() error {
	dev, err := verbs.OpenAddr(netip.MustParseAddr(victimAddr), verbs.Config{})
	if err != nil {
		return err
	}
	defer dev.Close()
	d := rdma.Dialer{Device: dev}
	return visit(t.ctx, &d, t.honest.listener.Addr().String())
}
