package cc

import (
	"testing"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// The parameters for hosts are the paper's, twenty times slower: the same rates
// with 20 Gb/s, and the same parts of any other line.
func TestHostProfile(t *testing.T) {
	t.Parallel()
	const g = 1_000_000_000
	for _, line := range []uint64{1 * g, 20 * g, 400 * g} {
		want, got := PaperProfile(20*g), HostProfile(line)
		for _, rate := range []*uint64{&want.Line, &want.Min, &want.Additive, &want.Hyper} {
			*rate = *rate / 10 * (line / g) / 2
		}
		want.AlphaPeriod *= 20
		want.IncreasePeriod *= 20
		want.CutPeriod = got.CutPeriod
		want.IncreaseBytes = want.IncreaseBytes * line / g // in 80 ms, as 4 ms of 20 Gb/s
		if got != want || got.CutPeriod.Microseconds() != 1000 {
			t.Errorf("%d b/s: %+v, want %+v", line, got, want)
		}
		if err := got.Check(); err != nil {
			t.Error(err)
		}
	}
	for _, line := range []uint64{0, 1000, 20_000, mostRate} {
		if _, err := (&Choice{Law: LawDCQCNHost, Line: line}).Maker(); err != nil {
			t.Errorf("%d b/s: %v", line, err)
		}
	}
}

// Two senders share a port of 1 Gb/s. While they send more, a notification
// comes each millisecond, as it is through operating systems. With the paper's
// timers each is back at the rate of the port by then.
func TestHostProfileSlowsDown(t *testing.T) {
	t.Parallel()
	const g = 1_000_000_000
	paper, host := PaperProfile(g), HostProfile(g)
	for _, c := range []struct {
		name        string
		p           *Profile
		least, most uint64 // in the mean of half a second
	}{
		{"paper", &paper, g * 99 / 100, g},
		{"host", &host, g * 45 / 100, g * 55 / 100},
	} {
		d := NewDCQCN(NewStatic(0, Config{}), c.p)
		var sum uint64
		for ms := range clock.Time(1000) {
			now := ms * 1000 * us
			d.Advance(now)
			rate, _ := d.Rate()
			if ms >= 500 {
				sum += rate
			}
			if rate > g/2 {
				d.Marked(now, &Flight{}, Notified)
			}
		}
		if mean := sum / 500; mean < c.least || mean > c.most {
			t.Errorf("%s: %d b/s", c.name, mean)
		}
	}
}
