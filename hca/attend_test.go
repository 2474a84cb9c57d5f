package hca

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/clock"
)

// In a bulk transfer turns are lost to others who are busy with it. But where
// each is, the receiver goes.
func TestAttendanceInBulk(t *testing.T) {
	t.Parallel()
	var a attendance
	now := clock.Time(1)
	for i := range 1000 {
		away := time.Duration(0)
		if i%4 == 0 {
			away = 4 * time.Millisecond
		}
		a.took(now, true, away)
	}
	if now < a.until {
		t.Error("some turns are lost, and the receiver is gone")
	}
	for range 100 {
		a.took(now, true, 4*time.Millisecond)
	}
	if now >= a.until {
		t.Error("all turns are lost, and the receiver is there")
	}
}

// The receiver attends where that gains more than it loses, and tries again
// after a while: later each time, up to a second.
func TestAttendance(t *testing.T) {
	t.Parallel()
	var a attendance
	now := clock.Time(1)
	a.lose(now, mostDebt/2)
	if now < a.until {
		t.Error("one turn is lost, and the receiver is gone")
	}
	a.lose(now, mostDebt)
	last := a.until.Sub(now)
	if last != shortestAbsence {
		t.Errorf("it is gone for %v", last)
	}
	for range 20 {
		now = a.until
		a.lose(now, 4*time.Millisecond)
		if d := a.until.Sub(now); d < last || d > longestAbsence {
			t.Errorf("it is gone for %v after %v", d, last)
		} else {
			last = d
		}
	}
	if last != longestAbsence {
		t.Errorf("in the end it is gone for %v", last)
	}
	now = a.until
	for range mostCredit / attendWorth {
		a.gain(attendWorth)
	}
	a.lose(now, 4*time.Millisecond)
	if now < a.until {
		t.Error("a turn is lost now and then, and the receiver is gone")
	}
	for now >= a.until {
		a.lose(now, 4*time.Millisecond)
	}
	if d := a.until.Sub(now); d != shortestAbsence {
		t.Errorf("after better times it is gone for %v", d)
	}
}
