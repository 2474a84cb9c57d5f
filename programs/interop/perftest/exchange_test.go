package perftest

import (
	"context"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/control"
	"github.com/gosoftroce/rocev2/programs/interop/internal/testpair"
	"github.com/gosoftroce/rocev2/verbs"
)

// TestExchange: the two sides of an exchange hear each other's addresses and
// reports, without devices.
func TestExchange(t *testing.T) {
	t.Parallel()
	server, client := testpair.Connections(t)
	c := &Config{IdleTimeout: time.Minute}
	side := func(x *exchange, mine report) (Address, report, error) {
		var theirs report
		a, err := x.swapAddress(t.Context(), "address", 0)
		if err == nil {
			err = x.handshake(t.Context(), "handshake")
		}
		if err == nil {
			theirs, err = x.reports(t.Context(), mine)
		}
		if err == nil {
			err = x.bye(t.Context())
		}
		return a, theirs, err
	}
	s := newExchange(control.New(server, task.Runner{}, interop.Server, time.Minute), task.Runner{}, c, greeting{})
	s.local = []Address{{QPN: 1}}
	done := make(chan error, 1)
	go func() {
		a, r, err := side(s, report{iterations: 3})
		if err == nil && (a.QPN != 2 || r.iterations != 4) {
			t.Errorf("the server heard of %v and %+v", a, r)
		}
		done <- err
	}()
	x := newExchange(control.New(client, task.Runner{}, interop.Client, time.Minute), task.Runner{}, c, greeting{})
	x.local = []Address{{QPN: 2}}
	a, r, err := side(x, report{iterations: 4})
	if err != nil || a.QPN != 1 || r.iterations != 3 {
		t.Errorf("the client heard of %v and %+v: %v", a, r, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestReplies: the answers on the control connection need no queue pairs. A
// handshake is answered with the address of what serves the queue pair, the
// first one is not read again, and a report is kept.
func TestReplies(t *testing.T) {
	t.Parallel()
	server, client := testpair.Connections(t)
	r := &replies{
		ctl: control.New(server, task.Runner{}, interop.Server, time.Minute), first: Address{QPN: 7}.append(nil),
		lane: func(_ context.Context, remote Address) (Address, error) { return Address{QPN: remote.QPN + 1}, nil },
	}
	ended := make(chan error, 1)
	go func() { ended <- r.run(t.Context()) }()
	ctl := control.New(client, task.Runner{}, interop.Client, time.Minute)
	for i, qpn := range []verbs.QPN{7, 9} {
		if mine := (Address{QPN: qpn}).append(nil); i > 0 {
			if err := ctl.Write(t.Context(), "address", mine); err != nil {
				t.Fatal(err)
			}
		}
		b := make([]byte, addressLen)
		if err := ctl.Read(t.Context(), "address", b); err != nil {
			t.Fatal(err)
		}
		if a, err := parseAddress("address", b); err != nil || a.QPN != qpn+1 {
			t.Errorf("queue pair %v is answered with %v: %v", qpn, a, err)
		}
	}
	if _, err := swapReports(t.Context(), ctl, report{iterations: 5}); err != nil {
		t.Fatal(err)
	}
	if err := ctl.Write(t.Context(), "end", []byte(done)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || r.handshakes.Load() != 2 || r.reported == nil || r.reported.iterations != 5 {
		t.Errorf("%d handshakes, report %+v: %v", r.handshakes.Load(), r.reported, err)
	}
}
