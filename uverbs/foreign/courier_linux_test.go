package foreign

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/ib"
)

// fakeSpace is the space of a process of another user, from which j is copied
// by carry. Its time is that of the test's bubble.
func fakeSpace(t *testing.T, uid uint32, carry func() bool) *Space {
	s := &Space{uid: uid, owner: ownerOf(uid), users: 1, pidfd: -1, mem: -1, maps: -1,
		couriers: couriers{carry: func([]byte, job) bool { return carry() }}}
	t.Cleanup(func() {
		s.Close()
		owners.Lock()
		delete(owners.of, uid)
		owners.Unlock()
	})
	return s
}

// TestStuck: a copy that does not end is given up, and its user gets no space
// before it has ended, and for a while after that.
func TestStuck(t *testing.T) {
	c := start(t, 64)
	c.space() // or it skips
	uid := uint32(os.Getuid())
	s, err := OpenProcess(c.cmd.Process.Pid, uid, nil)
	c.must(err)
	s.trusted, s.direct = false, false
	never := make(chan bool)
	defer close(never)
	s.carry = func([]byte, job) bool { return <-never }
	m, err := s.Region(c.addr, 64*pageSize, true)
	c.must(err)
	for range 2 {
		for what, err := range map[string]error{"read": m.CopyOut(make([]byte, 8), 0), "write": m.CopyIn(0, make([]byte, 100000)), "atomic": m.Store64(0, 1)} {
			if err != ib.FaultMemory {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	if !s.Stuck() {
		t.Error("the space is not stuck")
	}
	c.must(m.(*Region).Close())
	c.must(s.Close())
	if _, err := OpenProcess(c.cmd.Process.Pid, uid, nil); !errors.Is(err, os.ErrPermission) {
		t.Errorf("opened again: %v", err)
	}
	owners.Lock()
	delete(owners.of, uid)
	owners.Unlock()
}

// A user whose copies do not end takes no more from those who wait for the same
// lock than one whose patience is tried once, however many spaces he has.
func TestStuckSpacesOfAUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan bool)
		var spaces []*Space
		for range 100 {
			spaces = append(spaces, fakeSpace(t, 4711, func() bool { return <-never }))
		}
		other := fakeSpace(t, 4712, func() bool { return true })
		copyAll := func() time.Duration {
			start := time.Now()
			for _, s := range spaces { // as the queue pairs of a shard do, in turn
				if err := s.write(8, make([]byte, 8)); err != ib.FaultMemory {
					t.Fatal(err)
				}
				if err := other.write(8, make([]byte, 8)); err != nil {
					t.Fatalf("another user: %v", err)
				}
			}
			return time.Since(start)
		}
		if d := copyAll(); d != patience {
			t.Errorf("100 spaces have others wait for %v; want %v", d, patience)
		}
		time.Sleep(time.Hour) // the copy is still on its way
		if d := copyAll(); d != 0 {
			t.Errorf("while one is stuck: %v", d)
		}
		close(never)
		synctest.Wait()
		time.Sleep(penance - time.Millisecond)
		if d := copyAll(); d != 0 {
			t.Errorf("before the penance ends: %v", d)
		}
		time.Sleep(time.Millisecond)
		for _, s := range spaces[1:] {
			s.carry = func([]byte, job) bool { return true }
			if err := s.write(8, make([]byte, 8)); err != nil {
				t.Errorf("after the penance: %v", err)
			}
		}
		if spaces[0].write(8, make([]byte, 8)) == nil {
			t.Error("the space that was stuck is touched again")
		}
	})
}

// A user whose copies end just in time takes no more than half of the time, and
// one whose copies take what is usual is let be.
func TestSlowSpaces(t *testing.T) {
	for _, c := range []struct {
		name      string
		each, gap time.Duration
		copies    int
		refused   bool
	}{
		{"just in time", patience - time.Millisecond, 0, 100000, true},
		{"many slow ones", time.Millisecond, 0, 200000, true},
		{"usual", usual, 0, 10000, false},
		{"a slow disk, now and then", 10 * time.Millisecond, 20 * time.Millisecond, 10000, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakeSpace(t, 4713, func() bool { time.Sleep(c.each); return true })
				var taken, all time.Duration
				refused := false
				for range c.copies {
					start := time.Now()
					err := s.write(8, make([]byte, 8))
					taken += time.Since(start)
					if refused = refused || err != nil; err != nil {
						time.Sleep(time.Millisecond)
					}
					time.Sleep(c.gap)
					all += time.Since(start)
				}
				if c.refused && all < 3*penance/2 {
					t.Errorf("only %v have passed", all)
				}
				if refused != c.refused {
					t.Errorf("refused: %v", refused)
				}
				if most := all/2 + patience; c.each > usual && taken > most {
					t.Errorf("the copies took %v of %v", taken, all)
				}
			})
		})
	}
}
