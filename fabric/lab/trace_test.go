package lab_test

import (
	"context"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/qp/trace"
)

// A trace changes nothing, comes in the order of time, and agrees with the
// counters: packets sent again, and losses of each cut of a window.
func TestTrace(t *testing.T) {
	t.Parallel()
	text := `
seed = 5
cores = 2
[network]
topology = "star"
hosts = 9
lossy = true
buffer = "512KiB"
[[traffic]]
kind = "incast"
senders = 8
bytes = "512KiB"
`
	s, err := lab.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := lab.Run(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	var again, lost int
	var last time.Duration
	hosts := map[int]bool{}
	s.Trace = func(at time.Duration, host int, e *trace.Event) {
		if at < last {
			t.Errorf("an event of %v after one of %v", at, last)
		}
		last = at
		hosts[host] = true
		switch {
		case e.Kind == trace.Sent && e.Why != trace.None:
			again += e.Packets
		case e.Kind == trace.Lost:
			lost += e.Packets
		}
	}
	r, err := lab.Run(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	if r.Digest != plain.Digest {
		t.Errorf("digest %x with a trace, %x without", r.Digest, plain.Digest)
	}
	if uint64(again) != r.Stats.Retransmits || again == 0 || lost == 0 {
		t.Errorf("%d packets sent again, %d lost; counted %d", again, lost, r.Stats.Retransmits)
	}
	if len(hosts) < 8 {
		t.Errorf("events of %d hosts", len(hosts))
	}
}
