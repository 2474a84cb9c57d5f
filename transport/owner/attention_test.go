package owner

import (
	"testing"
	"time"
)

// The owner looks while datagrams follow each other. Where none come it sleeps
// nearly all the time.
func TestAttention(t *testing.T) {
	t.Parallel()
	var a attention
	now := time.Second
	for range 1000 {
		if !a.may(now) {
			t.Fatal("it sleeps while a datagram comes each 20 µs")
		}
		now += 20 * time.Microsecond
		a.came(20 * time.Microsecond)
	}
	begin, spent := now, time.Duration(0)
	for range 10000 { // something that is not passed on, each 100 µs
		if now += 100 * time.Microsecond; a.may(now) {
			now += lookFor
			spent += lookFor
			a.nothing(lookFor)
		}
	}
	if most := (now-begin)/lookShare + lookSpare; spent == 0 || spent > most {
		t.Errorf("in %v it looks for %v; %v are the most", now-begin, spent, most)
	}
	now += time.Second
	if !a.may(now) {
		t.Error("it does not try again")
	}
	a.interrupted(now)
	if a.may(now+lookBan-1) || !a.may(now+lookBan) {
		t.Error("it does not leave the processor to others for a while")
	}
}
