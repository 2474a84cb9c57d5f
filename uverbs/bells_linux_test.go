package uverbs

import (
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/ib"
	fake "github.com/gosoftroce/rocev2/uverbs/uverbstest"
)

// How long a client looks follows what came of it, within bounds.
func TestSpin(t *testing.T) {
	t.Parallel()
	s := spin(mostSpin)
	yes, no := func() bool { return true }, func() bool { return false }
	for range 10 {
		before := s
		if s.look(no) || s > before || s < spin(leastSpin) {
			t.Errorf("%v after %v in vain", s, before)
		}
	}
	if s != spin(leastSpin) {
		t.Errorf("in vain again and again: %v", s)
	}
	for range 10 {
		before := s
		if !s.look(yes) || s < before {
			t.Errorf("%v after %v that was worth it", s, before)
		}
	}
	if s != spin(mostSpin) {
		t.Errorf("worth it again and again: %v", s)
	}
	if s = 0; s.look(no) || !s.look(yes) || s != 0 {
		t.Errorf("with one processor: %v", s)
	}
}

// Nobody listens to who rings in vain all the time, and not for long.
func TestVain(t *testing.T) {
	t.Parallel()
	var v vain
	for range 3 {
		for range vainRings {
			if d := v.again(); d != 0 {
				t.Fatalf("nobody listens for %v", d)
			}
		}
		var all, last time.Duration
		for range 30 {
			d := v.again()
			if d < last || d < leastDeaf || d > mostDeaf {
				t.Errorf("%v after %v", d, last)
			}
			all, last = all+d, d
		}
		if last != mostDeaf {
			t.Errorf("in the end %v", last)
		}
		v.useful()
	}
}

// A program that rings without end is served seldom, and what it posts
// meanwhile is. Others do not notice.
func TestRingsWithoutEnd(t *testing.T) {
	t.Parallel()
	for name, ring := range map[string]func(a *app, h uint32){
		"eventfd": func(a *app, _ uint32) { unix.Write(int(a.c.Bell().Fd()), []byte{1, 0, 0, 0, 0, 0, 0, 0}) },
		"bells":   func(a *app, h uint32) { a.ringBell(h) },
		"bells of queue pairs that are not there": func(a *app, h uint32) {
			area := (*bellArea)(unsafe.Pointer(&a.mem[0]))
			for i := range area.bells {
				area.bells[i].Store(^uint64(0))
			}
			for i := range area.summary {
				area.summary[i].Store(^uint64(0))
			}
			a.ringBell(h)
		},
	} {
		everywhere(t, name, func(t *testing.T, hosts func(testing.TB) (a, b *Device)) {
			da, db := hosts(t)
			a, b, other := start(t, da), start(t, db), start(t, da)
			ca, cb, co := a.newCQ(15), b.newCQ(15), other.newCQ(15)
			qa, _ := connected(ib.RC, a, b, ca, cb)
			qo, _ := connected(ib.RC, other, b, co, cb)
			stop, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				for {
					select {
					case <-stop:
						return
					default:
						ring(a, qa.QpHandle)
						runtime.Gosched()
					}
				}
			}()
			eventually(t, "all rings are listened to", func() bool { return a.c.pauses.Load() > 3 })
			for id := range uint64(3) {
				for _, q := range []*appQP{qo, qa} {
					q.sq.PostSend(fake.SendWR{ID: id, Opcode: fake.Write, Flags: fake.Signaled, SGE: []ib.SGE{q.a.sge(0, 8)},
						Remote: b.addr(0), RKey: uint32(b.mr.Rkey)})
				}
				other.ringBell(qo.QpHandle)
				a.ringBell(qa.QpHandle)
				co.expect(ib.StatusSuccess, id)
				ca.expect(ib.StatusSuccess, id)
			}
			close(stop)
			<-ended
			if n := other.c.pauses.Load(); n != 0 {
				t.Errorf("another program was not listened to %d times", n)
			}
		})
	}
}
