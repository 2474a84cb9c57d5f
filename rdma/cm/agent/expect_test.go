package agent

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Many services may be expected. One that is already, and goes again, is
// expected for as long as another one, also when there are as many as there may
// be.
func TestExpectedAgain(t *testing.T) {
	t.Parallel()
	var e expected
	now := clock.Time(time.Hour)
	for s := range mad.ServiceID(2 * maxExpected) {
		e.add(now, s, time.Second)
	}
	if len(e.until) != maxExpected {
		t.Errorf("%d services are expected", len(e.until))
	}
	now = now.Add(time.Second / 2)
	e.add(now, 5, time.Second)
	now = now.Add(time.Second * 3 / 4)
	for s, want := range map[mad.ServiceID]bool{5: true, 6: false, 2*maxExpected - 1: false} {
		if got := e.hold(now, &Path{}, s, mad.CommID(s), false, nil); got != want {
			t.Errorf("service %d is expected: %v", s, got)
		}
	}
	e.add(now, 7, time.Second) // those that are over make room, but for one that is asked for
	if len(e.until) != 2 {
		t.Errorf("%d services are expected", len(e.until))
	}
}
