package uverbs

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/clock"
)

// A program that moves bulk data, and waits, is told of completions a while
// later, and not never.
func TestToldOfBulkLater(t *testing.T) {
	t.Parallel()
	area, err := newArea(1<<12, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &bellRoom{}
	c := &Client{area: area, room: r}
	r.clients = append(r.clients, c)
	now := clock.Time(time.Second)
	begin := func() {
		r.attends.Store(true)
		c.bulk.sends.Store(true)
		c.told()
		c.polls(now)
		area.waiting.Store(1)
		c.polls(now)
	}
	check := func(why string, waits bool) {
		t.Helper()
		if got := area.waiting.Load() != 0; got != waits {
			t.Errorf("%s: waits %v", why, got)
		}
	}
	begin()
	if area.bulk.Load() == 0 {
		t.Error("the program does not know that it moves bulk data")
	}
	c.told()
	c.polls(now)
	c.polls(now.Add(tellAfter))
	check("a completion has come just now", true)
	c.polls(now.Add(tellAfter + 1))
	check("it has come a while ago", false)

	begin()
	c.polls(now.Add(longestBulkWait))
	check("nothing has come", true)
	c.polls(now.Add(longestBulkWait + 1))
	check("nothing has come for long", false)

	begin()
	c.told()
	r.Attend(false)
	check("the daemon does other things", false)
	area.waiting.Store(1)
	c.told()
	check("the daemon does other things, and a completion comes", false)

	begin()
	c.told()
	c.polls(now)
	c.bulk.over()
	c.polls(now)
	check("it was the last of the bulk", false)

	begin()
	c.polls(now.Add(bulkGap + 1))
	if c.bulk.is() || area.bulk.Load() != 0 {
		t.Error("a program that has moved bulk data long ago does so for ever")
	}
	if err := area.close(); err != nil {
		t.Error(err)
	}
}
