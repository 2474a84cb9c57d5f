package requester

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// TestRetry: the timer runs from the last progress, which reloads the count
// (IBTA 9.7.6.1.3).
func TestRetry(t *testing.T) {
	t.Parallel()
	var r retry
	r.configure(14, 2)
	interval := clock.Time(rocev2.AckTimeout(14))
	r.start(1000)
	r.start(2000) // runs already
	if r.deadline != 1000+interval || r.expired(999+interval) || !r.expired(1000+interval) || r.expired(1000+interval) {
		t.Error("the timer does not run out once, an interval after the first packet")
	}
	for i := range 3 {
		if got := r.spend(); got != (i < 2) {
			t.Errorf("a count of 2, retry %d: %v", i+1, got)
		}
	}
	if r.exhausted() != ib.StatusRetryExcErr {
		t.Error(r.exhausted())
	}
	r.badResp = true
	if r.exhausted() != ib.StatusBadRespErr {
		t.Error("after responses that do not fit, the status must say so")
	}
	r.progress(5000, true)
	if r.left != 2 || !r.armed || r.deadline != 5000+interval || r.badResp {
		t.Errorf("progress left %+v", r)
	}
	r.progress(6000, false)
	if r.armed {
		t.Error("the timer runs without anything in flight")
	}
	r.configure(0, 7)
	if r.interval != GuardTimeout || GuardTimeout != 2*rocev2.AckTimeout(20) {
		t.Errorf("timeout 0 is %v", r.interval)
	}
}

// TestRNR: a wait takes one of the count, of which 7 has no end (IBTA
// 9.7.5.2.8).
func TestRNR(t *testing.T) {
	t.Parallel()
	var r rnr
	r.configure(1)
	if !r.nak(100, time.Microsecond) || r.expired(1099) || !r.expired(1100) || r.expired(1100) {
		t.Error("the wait does not end once, after the delay")
	}
	if r.nak(2000, 1) {
		t.Error("a count of 1 allows a second retry")
	}
	r.reset()
	if !r.nak(2000, 1) {
		t.Error("progress does not reload the count")
	}
	r.configure(7)
	for range 1000 {
		if !r.nak(0, 1) {
			t.Fatal("7 is not without end")
		}
	}
}

// TestCredit: a message may start up to the limit LSN = MSN + credits (IBTA
// 9.7.7.2).
func TestCredit(t *testing.T) {
	t.Parallel()
	var c credit
	if !c.allows(12345) {
		t.Error("limited before the peer said anything")
	}
	c.update(&rocev2.AETH{Syndrome: rocev2.SyndromeACK(2), MSN: 0xffffff})
	if !c.allows(0) || !c.allows(1) || c.allows(2) {
		t.Errorf("MSN 0xffffff and 2 credits do not end at SSN 1: %+v", c)
	}
	c.update(&rocev2.AETH{Syndrome: rocev2.ACKNoCredits})
	if !c.allows(100) {
		t.Error("0x1f limits")
	}
}
