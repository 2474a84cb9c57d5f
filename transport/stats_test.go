package transport

import (
	"reflect"
	"testing"
)

// Every counter takes part, those added later too.
func TestStatsAddAllCounters(t *testing.T) {
	t.Parallel()
	var a, b LinkStats
	v := reflect.ValueOf(&b).Elem()
	for i := range v.NumField() {
		v.Field(i).SetUint(uint64(i + 1))
	}
	a.Add(&b)
	a.Add(&b)
	n := 0
	a.Each(func(name string, got uint64) {
		n++
		if want := uint64(2 * n); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	})
	if n != v.NumField() {
		t.Errorf("Each names %d of %d counters", n, v.NumField())
	}
}

// Every counter that a link can count is among those that it reports.
func TestCountersReportAll(t *testing.T) {
	t.Parallel()
	b := NewRxBatch(1)
	b.Append(RxPacket{Data: make([]byte, 20), ICRC: ICRCBad})
	b.Append(RxPacket{Data: make([]byte, 30), ICRC: ICRCWeak})
	b.Append(RxPacket{Data: make([]byte, 40), ICRC: ICRCVerified})
	var c LinkCounters
	for range 2 {
		c.Sent(6, 5, 40)
		c.SendFailed(7)
		c.SendWaited()
		c.Received(b, 8, 9)
		c.Overflowed()
		c.SocketError()
		c.OffloadFault()
	}
	want := LinkStats{
		TxPackets: 12, TxBytes: 80, TxBuffers: 10, TxErrors: 14, TxWaits: 2,
		RxPackets: 6, RxBytes: 180, RxBuffers: 16, RxBadICRC: 2, RxWeakICRC: 2, RxMalformed: 18, RxOverflow: 2,
		SocketErrors: 2, OffloadFaults: 2,
	}
	if got := c.Load(); got != want {
		t.Errorf("counted %+v\nwant    %+v", got, want)
	}
	c.SetOverflow(100)
	if got := c.Load().RxOverflow; got != 100 {
		t.Errorf("an overflow of 100 is reported as %d", got)
	}
}

// A SendError tells of the first failure and counts all; one that was returned
// does not change when the next batch fails.
func TestSendErrorCounts(t *testing.T) {
	t.Parallel()
	var e SendError
	if err := e.Result(); err != nil {
		t.Errorf("nothing failed, and the result is %v", err)
	}
	e.Add(3, 2, ErrTooLong)
	e.Add(9, 1, ErrClosed)
	err := e.Result()
	e = SendError{}
	if got, ok := err.(*SendError); !ok || *got != (SendError{Index: 3, Failed: 3, Err: ErrTooLong}) {
		t.Errorf("the result is %v", err)
	}
}
