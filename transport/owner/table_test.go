package owner

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// take leases k slots of those that are free.
func take(t table, now time.Time, k int) (first int, ok bool) {
	if first, ok = t.find(k); ok {
		t.lease(now, first, k, 1)
	}
	return first, ok
}

func TestTable(t *testing.T) {
	t.Parallel()
	tab := newTable(8)
	var now time.Time
	now = now.Add(time.Hour)
	taken := map[int]bool{}
	for range 3 {
		first, ok := take(tab, now, 2)
		if !ok || first%2 != 0 || first <= ownSlot || taken[first] {
			t.Fatalf("slot %d, %v", first, ok)
		}
		taken[first] = true
	}
	if first, ok := take(tab, now, 2); ok {
		t.Fatalf("slot %d beside the owner's", first)
	}
	if first, ok := take(tab, now, 1); !ok || first != 0 {
		t.Fatalf("slot %d, %v; 0 is free", first, ok)
	}
	if _, ok := take(tab, now, 1); ok {
		t.Fatal("a slot too many")
	}
	if n := tab.count(slotLeased); n != 8 {
		t.Errorf("%d slots are leased, the owner's included", n)
	}
}

// A slot is free when nothing has come for 2 s, and in any case after 60 s.
func TestSlotsRest(t *testing.T) {
	t.Parallel()
	tab := newTable(8)
	now := time.Time{}.Add(time.Hour)
	drops := map[int]uint64{}
	look := func(i int) uint64 { return drops[i] }
	for range 6 {
		take(tab, now, 1)
	}
	tab.rest(now, 2, 1, look)
	tab.rest(now, 3, 1, look)
	free := map[int]time.Duration{}
	for d := time.Duration(0); d <= 70*time.Second; d += lookEvery {
		drops[3]++ // there is no end of packets for it
		if d < 5*time.Second {
			drops[2]++
		}
		tab.look(now.Add(d), look)
		for _, i := range []int{2, 3} {
			if _, known := free[i]; !known && tab[i].state == slotFree {
				free[i] = d
			}
		}
	}
	if got := free[2]; got < 5*time.Second+quietFor-2*lookEvery || got > 5*time.Second+quietFor+lookEvery {
		t.Errorf("the slot that was quiet from 5 s on is free after %v", got)
	}
	if got := free[3]; got != restMost {
		t.Errorf("the slot that is never quiet is free after %v", got)
	}
}

// What a user has, or has given back and rests, counts for it. The owner's slot
// counts for none.
func TestSlotsOfUsers(t *testing.T) {
	t.Parallel()
	tab := newTable(16)
	now := time.Time{}.Add(time.Hour)
	none := func(int) uint64 { return 0 }
	want := func(scarce bool, of ...int) {
		t.Helper()
		for uid, n := range of {
			if got := tab.of(uint32(uid)); got != n {
				t.Errorf("user %d has %d slots, not %d", uid, got, n)
			}
		}
		if tab.scarce() != scarce {
			t.Errorf("slots are scarce: %v", !scarce)
		}
	}
	want(false, 0, 0, 0)
	tab.lease(now, 4, 4, 1)
	tab.lease(now, 2, 1, 0)
	want(false, 1, 4, 0)
	tab.lease(now, 8, 2, 2)
	want(false, 1, 4, 2)
	tab.rest(now, 4, 4, none)
	tab.lease(now, 12, 4, 2)
	want(true, 1, 4, 6)
	tab.look(now.Add(quietFor), none)
	want(false, 1, 0, 6)
}

// Of free slots those go that have been free for longest.
func TestLongestFreeFirst(t *testing.T) {
	t.Parallel()
	tab := newTable(8)
	now := time.Time{}.Add(time.Hour)
	none := func(int) uint64 { return 0 }
	for range 7 {
		if _, ok := take(tab, now, 1); !ok {
			t.Fatal("no slot")
		}
	}
	for k, i := range []int{5, 2, 7, 4} {
		at := now.Add(time.Duration(k) * time.Minute)
		tab.rest(at, i, 1, none)
		if tab.look(at.Add(quietFor), none) {
			t.Fatal("it still rests")
		}
	}
	for _, want := range []int{5, 2, 7, 4} {
		if got, ok := take(tab, now.Add(time.Hour), 1); !ok || got != want {
			t.Errorf("slot %d, %v; want %d", got, ok, want)
		}
	}
}

type closer struct{ closed bool }

func (c *closer) Close() error { c.closed = true; return nil }

// Each user has a bounded number of places, and so have all users together. The
// oldest connection goes.
func TestGuests(t *testing.T) {
	t.Parallel()
	var g guests
	other := &guest{uid: 2, conn: &closer{}, asked: silent}
	g.enter(other)
	var mine []*guest
	for range guestsOfUser + 1 {
		n := &guest{uid: 1, conn: &closer{}, asked: silent}
		mine = append(mine, n)
		g.enter(n)
	}
	if !mine[0].conn.(*closer).closed || mine[1].conn.(*closer).closed || other.conn.(*closer).closed {
		t.Error("another connection has gone than the oldest of the user")
	}
	if g.leave(mine[0]) || !g.leave(mine[1]) || g.leave(mine[1]) {
		t.Error("leave is wrong about the places that are taken")
	}
	for i := range 10 * mostGuests {
		g.enter(&guest{uid: uint32(10 + i), conn: &closer{}, asked: silent})
	}
	if len(g.all) != mostGuests {
		t.Errorf("%d places are taken", len(g.all))
	}
}

func silent() bool { return false }

// Those that have asked keep their places: a new one waits for one of them, or
// for the end.
func TestGuestsThatHaveAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g guests
		enter := func() *guest {
			n := &guest{uid: 1, conn: &closer{}, asked: func() bool { return true }}
			go g.enter(n)
			synctest.Wait()
			return n
		}
		first := enter()
		for range guestsOfUser {
			enter()
		}
		if len(g.all) != guestsOfUser || first.conn.(*closer).closed {
			t.Errorf("%d have places", len(g.all))
		}
		next := enter()
		if !g.leave(first) {
			t.Error("the first one has lost its place")
		}
		synctest.Wait()
		if len(g.all) != guestsOfUser {
			t.Errorf("%d have places after one has left", len(g.all))
		}
		g.closeAll()
		synctest.Wait()
		if !slices.Contains(g.all, next) {
			t.Error("one waits after the end")
		}
	})
}

func TestBucket(t *testing.T) {
	t.Parallel()
	now := time.Time{}.Add(time.Hour)
	b := newBucket(10, 3, now)
	for range 3 {
		if w := b.take(now); w != 0 {
			t.Errorf("waits %v", w)
		}
	}
	if w := b.take(now); w != 100*time.Millisecond {
		t.Errorf("waits %v", w)
	}
	if w := b.take(now.Add(time.Minute)); w != 0 {
		t.Errorf("waits %v after a minute", w)
	}
}
