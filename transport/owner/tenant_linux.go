//go:build !portable

package owner

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/lease"
)

const (
	// mostShards is what one lease may have.
	mostShards = 64
	// Messages of a leaseholder in a second, and at once. One that sends
	// more waits.
	messageRate, messageBurst = 1000, 4096
	// mostRate bounds each counter that a leaseholder tells, for each
	// second of its lease: no device is as fast. So sums do not wrap.
	mostRate = 1 << 36
	// mostRun is the longest name of a run that is remembered.
	mostRun = 256
	// answerTime is how long an answer may take to be written. A process
	// that takes none for that long loses its lease.
	answerTime = time.Second
)

// tenant is a leaseholder.
type tenant struct {
	owner   *Owner
	conn    *net.UnixConn
	pid     int
	uid     uint32
	command string
	run     string
	slot, n int
	token   lease.Token
	serial  uint32
	since   time.Time

	mu     sync.Mutex // guards what follows
	counts lease.Counts
	tells  bool          // it has told counters
	told   chan struct{} // closed when it has answered; nil: it is not asked
}

// accept takes connections until the door is closed.
func (o *Owner) accept(d *door) {
	for pause := time.Millisecond; ; {
		conn, err := d.AcceptUnix()
		switch {
		case err == nil:
			pause = time.Millisecond
			o.greet(conn)
		case errors.Is(err, net.ErrClosed):
			return
		default: // out of descriptors
			<-time.After(pause)
			pause = min(2*pause, time.Second)
		}
	}
}

// greet gives a connection a place, and serves it.
func (o *Owner) greet(conn *net.UnixConn) {
	pid, uid, err := peerOf(conn)
	if err != nil {
		conn.Close()
		return
	}
	g := &guest{uid: uid, conn: conn, asked: func() bool { return pending(conn) }}
	o.guests.enter(g)
	t := &tenant{owner: o, conn: conn, pid: pid, uid: uid}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		conn.Close()
		return
	}
	o.serving.Go(func() {
		defer conn.Close()
		if t.enter(g) {
			defer t.end()
			t.serve()
		}
	})
}

// enter takes what a process asks for, and gives it a lease or says why not.
func (t *tenant) enter(g *guest) bool {
	o := t.owner
	_ = t.conn.SetDeadline(time.Now().Add(patience)) // it fails only on a closed one
	m, err := t.read(make([]byte, lease.MaxMessage+1))
	if err == nil && m.List {
		t.list()
		o.guests.leave(g)
		return false
	}
	if !o.guests.leave(g) {
		return false // its place has another one
	}
	var no *lease.Refusal
	switch {
	case err != nil:
		no = refusal(lease.BadRequest, "%v", err)
	case m.Hello == nil:
		no = refusal(lease.BadRequest, "a process begins with hello")
	default:
		no = t.take(m.Hello)
	}
	if no == nil {
		return true
	}
	o.mu.Lock()
	o.refused++
	o.mu.Unlock()
	if errors.Is(err, io.EOF) {
		return false // it has only looked whether there is an owner
	}
	if hidden, ok := o.limit.Allow(time.Now()); ok {
		o.log.Warn("a process gets no lease", "pid", t.pid, "uid", t.uid, "why", no.Text, "more_before", hidden)
	}
	_ = t.write(&lease.Message{Refused: no}) // it sees the end, else
	return false
}

// read takes one message. Descriptors that come with it the kernel drops.
func (t *tenant) read(b []byte) (*lease.Message, error) {
	n, err := t.conn.Read(b)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, net.ErrClosed
	}
	return lease.Parse(b[:n])
}

func (t *tenant) write(m *lease.Message) error {
	if err := t.conn.SetWriteDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	_, err := t.conn.Write(m.Append(nil))
	return err
}

// post is write that does not wait.
func (t *tenant) post(m *lease.Message) error {
	raw, err := t.conn.SyscallConn()
	if err != nil {
		return err
	}
	if e := raw.Control(func(fd uintptr) { err = unix.Send(int(fd), m.Append(nil), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) }); e != nil {
		return e
	}
	return err
}

// check says what is wrong with a request.
func (t *tenant) check(h *lease.Hello) *lease.Refusal {
	o := t.owner
	switch {
	case h.Version != lease.Version:
		return refusal(lease.BadRequest, "the program speaks version %d of the protocol, the owner (process %d) %d: use the same release of both", h.Version, os.Getpid(), lease.Version)
	case t.uid != uint32(os.Geteuid()) && (o.cfg.Allow == nil || !o.cfg.Allow(t.uid)):
		return refusal(lease.NotAllowed, "user %d may not lease the port of %v, which process %[4]d of user %[3]d owns; its configuration names others that may (users of rocev2d)", t.uid, o.Addr(), os.Geteuid(), os.Getpid())
	case h.Shards < 1 || h.Shards > min(mostShards, o.cfg.Slots/2) || h.Shards&(h.Shards-1) != 0:
		return refusal(lease.BadRequest, "%d shards; it must be a power of two, %d at most", h.Shards, min(mostShards, o.cfg.Slots/2))
	case len(h.Command) > 256:
		return refusal(lease.BadRequest, "a name of %d bytes; 256 are the most", len(h.Command))
	}
	return nil
}

// take leases slots, and passes them on.
func (t *tenant) take(h *lease.Hello) *lease.Refusal {
	if no := t.check(h); no != nil {
		return no
	}
	o := t.owner
	t.command, t.n, t.since = strings.Map(visible, h.Command), h.Shards, time.Now()
	if len(h.Run) <= mostRun {
		t.run = strings.Map(visible, h.Run)
	}
	rand.Read(t.token[:])
	for {
		if no := o.admit(t); no != nil {
			return no
		}
		err := t.prepare(h)
		if err == nil {
			break
		}
		o.lose(t)
		o.log.Error("slots cannot be used any more: a leaseholder has spoilt them", "slot", t.slot, "slots", t.n, "err", err)
	}
	err := o.exchange.join(t)
	if err == nil {
		err = t.grant()
	}
	if err != nil {
		o.mu.Lock()
		o.granted--
		o.mu.Unlock()
		t.forget()
		t.giveBack()
		return refusal(lease.BadRequest, "the sockets cannot be passed on: %v", err)
	}
	o.cfg.Changed()
	o.log.Info("port leased", "pid", t.pid, "uid", t.uid, "command", t.command, "slot", t.slot, "slots", t.n)
	return nil
}

// visible replaces what a terminal would obey.
func visible(r rune) rune {
	if !unicode.IsPrint(r) {
		return '?'
	}
	return r
}

// admit enters a leaseholder, if there are slots for it.
func (o *Owner) admit(t *tenant) *lease.Refusal {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return refusal(lease.NoSlot, "the owner (process %d) ends", os.Getpid())
	}
	of := 0
	for other := range o.tenants {
		if other.uid == t.uid {
			of++
		}
	}
	if of >= o.cfg.Quota.Leases {
		return refusal(lease.OverQuota, "user %d has %d leases of %v, the most that the owner (process %d) gives it", t.uid, of, o.Addr(), os.Getpid())
	}
	slot, ok := o.table.find(t.n)
	if !ok {
		reason, resting := lease.NoSlot, o.table.count(slotResting)
		if resting > 0 {
			reason = lease.Resting
		}
		return refusal(reason, "of the %d slots of %v %d are leased and %d rest, and no %d side by side are free: end a process that uses the address, or wait some seconds",
			len(o.table), o.Addr(), o.table.count(slotLeased), resting, t.n)
	}
	if has := o.table.of(t.uid); o.table.scarce() && has+t.n > o.cfg.Quota.Leases {
		return refusal(lease.OverQuota, "processes of user %d have, or have had until some seconds ago, %d slots of %v, and it gets %d of the owner (process %d) while few are free",
			t.uid, has, o.Addr(), o.cfg.Quota.Leases, os.Getpid())
	}
	if o.serial == math.MaxUint32 { // two leases of a slot must not seal alike
		return refusal(lease.NoSlot, "the owner (process %d) has leased the port as often as it can: start it again", os.Getpid())
	}
	o.serial++
	o.table.lease(time.Now(), slot, t.n, t.uid)
	t.slot, t.serial = slot, o.serial
	o.tenants[t] = struct{}{}
	o.granted++
	return nil
}

// lose takes back what admit has given. Its slots are not given again.
func (o *Owner) lose(t *tenant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.tenants, t)
	o.granted--
	o.table.set(t.slot, t.n, slot{state: slotLost})
}

// prepare has the slots take what comes.
func (t *tenant) prepare(h *lease.Hello) error {
	o := t.owner
	q, u := &o.cfg.Quota, &o.cfg.UDP
	recv, send := bufferSize(h.RecvBuffer, u.RecvBuffer, q.RecvBuffer), bufferSize(h.SendBuffer, u.SendBuffer, q.SendBuffer)
	for i := range t.n {
		if err := o.slots.Use(t.slot+i, recv, send); err != nil {
			return err
		}
	}
	return nil
}

// grant sends the descriptors of the slots.
func (t *tenant) grant() error {
	o := t.owner
	m := lease.Message{Grant: &lease.Grant{Version: lease.Version, Local: o.slots.Local(), Scope: o.slots.Scope(),
		Slot: t.slot, Slots: o.slots.Len(), Token: t.token, MaxQPs: o.cfg.Quota.QPs,
		LinkMTU: o.slots.LinkMTU(), Namespace: o.slots.Namespace()}}
	if err := t.conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	m.Grant.Serial, m.Grant.Secured = t.serial, o.cfg.Secured != nil
	err := o.slots.Descriptors(t.slot, t.n, func(fds []int) error {
		if m.Grant.Secured {
			fds = append(fds, int(o.cfg.Secured.File.Fd()))
		}
		_, _, err := t.conn.WriteMsgUnix(m.Append(nil), unix.UnixRights(fds...), nil)
		return err
	})
	if err == nil {
		err = t.conn.SetDeadline(time.Time{})
	}
	return err
}

// bufferSize is what is asked for, or else configured, or else the default,
// within the quota.
func bufferSize(asked, configured, most int) int {
	const standard = 16 << 20
	switch {
	case asked > 0:
		return min(asked, most)
	case configured > 0:
		return min(configured, most)
	}
	return min(standard, most)
}

// serve does what a leaseholder asks for, until it ends.
func (t *tenant) serve() {
	stop := t.watchProcess()
	defer stop()
	limit := newBucket(messageRate, messageBurst, time.Now())
	b := make([]byte, lease.MaxMessage+1)
	for {
		m, err := t.read(b)
		if err == nil {
			err = t.handle(m)
		}
		if err != nil {
			return
		}
		if wait := limit.take(time.Now()); wait > 0 {
			<-time.After(wait) // it alone waits
		}
	}
}

var errOutOfPlace = errors.New("a message out of place")

func (t *tenant) handle(m *lease.Message) error {
	x := t.owner.exchange
	switch {
	case m.Reserve != nil:
		if err := x.reserve(t, m.Reserve); err != nil {
			return t.write(&lease.Message{Refused: err})
		}
		return t.write(&lease.Message{Done: true})
	case m.Release != nil:
		x.release(t, m.Release)
	case m.Want != nil && t.owner.cfg.Secured != nil:
		t.owner.cfg.Secured.Want(m.Want.Peer, m.Want.Why)
	case m.Tell != nil:
		t.mu.Lock()
		t.counts, t.tells = *m.Tell, true
		t.counts.Bound(mostRate * (1 + uint64(time.Since(t.since)/time.Second)))
		if t.told != nil {
			close(t.told)
			t.told = nil
		}
		t.mu.Unlock()
	default:
		return errOutOfPlace
	}
	return nil
}

// ask asks for the counters. The channel is closed when they have come, or will
// not. It does not wait: a leaseholder that has so much unread that there is no
// room has answered without reading, and loses its lease.
func (t *tenant) ask() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.told != nil {
		return t.told // it is asked already
	}
	t.told = make(chan struct{})
	told := t.told
	if err := t.post(&lease.Message{Ask: true}); err != nil {
		close(t.told)
		t.told = nil
		t.conn.Close()
	}
	return told
}

func (t *tenant) describe() Lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &t.counts
	return Lease{PID: t.pid, UID: t.uid, Command: t.command, Slot: t.slot, Slots: t.n, Run: t.run, Since: t.since, Told: t.tells, Last: c.Last,
		QPs: c.QPs, MadeQPs: c.MadeQPs, TxPackets: c.TxPackets, RxPackets: c.RxPackets, TxBytes: c.TxBytes, RxBytes: c.RxBytes,
		TxShm: c.TxShm, RxShm: c.RxShm, Reached: c.Peers[:min(len(c.Peers), transport.MostUsedPeers)], Work: c.Work, Guard: c.Guard}
}

// end ends the lease.
func (t *tenant) end() {
	o := t.owner
	l := t.describe()
	o.exchange.describe(t, &l)
	o.mu.Lock() // so a lease is never in neither list
	delete(o.tenants, t)
	if o.cfg.Ended != nil {
		o.cfg.Ended(l)
	}
	o.mu.Unlock()
	t.forget()
	t.giveBack()
	o.cfg.Changed()
	o.log.Info("lease ended", "pid", t.pid, "command", t.command, "slot", t.slot, "after", time.Since(t.since).Round(time.Millisecond))
}

// forget takes the leaseholder off the list.
func (t *tenant) forget() {
	o := t.owner
	o.mu.Lock()
	delete(o.tenants, t)
	o.mu.Unlock()
	t.mu.Lock()
	if t.told != nil {
		close(t.told)
		t.told = nil
	}
	t.mu.Unlock()
}

// giveBack ends what take has begun.
func (t *tenant) giveBack() {
	t.owner.exchange.leave(t)
	t.mu.Lock()
	idle := t.counts.Idle()
	t.mu.Unlock()
	t.owner.rest(t.slot, t.n, idle)
}

// watchProcess ends the lease when the process does, also while a child of it
// still has the socket. It does nothing where the kernel does not tell (Linux
// before 5.3), or for a process that is not visible here.
func (t *tenant) watchProcess() (stop func()) {
	fd, err := peerProcess(t.conn, t.pid)
	if errors.Is(err, errEnded) {
		t.conn.Close()
	}
	if err != nil {
		return func() {}
	}
	f := os.NewFile(uintptr(fd), fmt.Sprintf("pidfd of %d", t.pid))
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return func() {}
	}
	t.owner.wg.Go(func() {
		err := raw.Read(func(fd uintptr) bool {
			fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(fds[:], 0)
			return err == nil && n > 0
		})
		if err == nil {
			t.conn.Close()
		}
	})
	return func() { f.Close() }
}
