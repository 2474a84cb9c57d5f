package conn

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// RateCuts counts the cuts that happen, also those that were put off because
// the notification came within the cut period, whatever carries them out:
// sending, a timer, or the next notification. A notification that lowers
// nothing does not count.
func TestRateCutsThatWerePutOff(t *testing.T) {
	t.Parallel()
	profile := cc.PaperProfile(100e9)
	profile.CutPeriod, profile.Min = 50*time.Microsecond, 1e9
	c := &Conn{CC: Congestion{Control: cc.NewDCQCN(cc.NewStatic(0, cc.Config{}), &profile)}}
	c.CC.Reset()
	now := clock.Time(1)
	check := func(after string, want uint64) {
		t.Helper()
		s := c.Stats.Stats()
		if s.RateCuts != want || s.WindowCuts != 0 {
			t.Errorf("%s: %d rate cuts, %d window cuts, want %d and 0", after, s.RateCuts, s.WindowCuts, want)
		}
	}
	mark := func() { c.Marked(now, &cc.Flight{}, cc.Notified) }
	mark()
	check("the first notification", 1)
	now += 1000
	mark()
	mark()
	check("two more within the cut period", 1)
	now += clock.Time(profile.CutPeriod)
	c.Spent(now, 1000, 1)
	check("what is sent after it", 2)
	mark()
	now += clock.Time(5 * time.Millisecond) // an idle connection whose rate has grown back
	mark()
	check("a notification, and one long after", 4)
	mark()
	now += clock.Time(profile.CutPeriod)
	c.CC.Limit.Deadline = now
	c.Advance(now)
	check("a timer", 5)
	for range 50 {
		now += clock.Time(profile.CutPeriod)
		mark()
	}
	before := c.Stats.Stats().RateCuts
	if c.CC.Limit.Rate != profile.Min {
		t.Fatalf("the rate is %d", c.CC.Limit.Rate)
	}
	now += clock.Time(profile.CutPeriod)
	mark()
	check("a notification at the least rate", before)
	c.Reset()
	c.CC.Reset()
	mark()
	check("the connection begins anew", before+1)
}
