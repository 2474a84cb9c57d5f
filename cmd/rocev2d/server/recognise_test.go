package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/target"
	"github.com/gosoftroce/rocev2/verbs"
)

// A client that resets its connection can come again from the same port while
// the first connection is still being served. Each has its own record.
func TestTwoClientsOfOnePort(t *testing.T) {
	t.Parallel()
	link, _ := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	dev, err := verbs.OpenLink(link, verbs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	log := slog.New(slog.DiscardHandler)
	s := newRecords(log)
	r := newRecognised(&Host{Device: dev, Log: log, Config: config.Default().Targets, name: "perftest", records: s})
	first := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 4000}
	second := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 4000}
	for _, a := range []net.Addr{first, second} {
		if err := r.begin(a); err != nil {
			t.Fatal(err)
		}
	}
	r.end(target.Client{Addr: first, Began: true, Tool: "ib_send_bw", Err: errors.New("reset")})
	r.end(target.Client{Addr: second, Began: true, Tool: "ib_write_bw"})
	if n := s.visits.size(); n != 0 {
		t.Errorf("%d clients are still there", n)
	}
	over := s.visits.over() // the last first
	if len(over) != 2 || over[1].Target != "ib_send_bw" || over[1].Error != "reset" || over[0].Target != "ib_write_bw" || over[0].Error != "" {
		t.Errorf("the records are %+v", over)
	}
}

// A client that the end of the daemon cuts off may first meet the context that
// has ended, or a queue pair that was closed. Both are told as the same.
func TestCutOffByClosing(t *testing.T) {
	t.Parallel()
	s := newRecords(slog.New(slog.DiscardHandler))
	s.cutOff.Store(true)
	for i, err := range []error{context.Canceled, fmt.Errorf("post: %w", verbs.ErrClosed)} {
		v, _ := s.visits.begin(time.Now(), "rping", "192.0.2.1", &net.TCPAddr{Port: i}, 9)
		(&Guest{v, &Host{name: "rping", records: s}}).End("", err)
		if got := s.visits.over()[0].Error; got != errCutOff.Error() {
			t.Errorf("%v is told as %q", err, got)
		}
	}
}

// Every remedy can be found: none has its text inside of the text of a later
// one.
func TestRemediesAreReached(t *testing.T) {
	t.Parallel()
	for _, r := range remedies {
		p := Problem{What: "send: " + r.has}
		if explain(&p); p.Meaning != r.meaning || p.Remedy != r.remedy {
			t.Errorf("%s is explained by %q, not by %q", r.has, p.Meaning, r.meaning)
		}
	}
}

// The time of a connection is not that of the messages, which the rate is of.
func TestResultOf(t *testing.T) {
	t.Parallel()
	c := target.Client{Messages: 2000, Size: 4096, Service: interop.RC, Elapsed: 2100 * time.Millisecond, Gbps: 1.29}
	if got, want := resultOf(c), "2000 messages of 4096 bytes over RC, 1.29 Gb/s; connected for 2.1s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	one := target.Client{Tool: "ib_read_lat", Service: interop.RC, Elapsed: 451 * time.Millisecond}
	if got, want := resultOf(one), "served over RC; connected for 451ms"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	c.Gbps = 0
	if got, want := resultOf(c), "2000 messages of 4096 bytes over RC; connected for 2.1s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
