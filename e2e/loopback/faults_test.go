package loopback

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/fault"
	"github.com/gosoftroce/rocev2/transport/udp"
	"github.com/gosoftroce/rocev2/verbs"
)

// The same operations come through whatever the network does to one packet in
// fifty.
func TestEveryOperationUnderFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		rule fault.Rule
	}{
		{"loss", fault.Rule{Action: fault.Drop, Rate: 0.02}},
		{"duplication", fault.Rule{Action: fault.Duplicate, Rate: 0.02}},
		{"reordering", fault.Rule{Action: fault.Reorder, Rate: 0.02}},
		{"corruption", fault.Rule{Action: fault.Corrupt, Rate: 0.02}},
		{"delay", fault.Rule{Action: fault.Delay, Rate: 0.02, Delay: 2 * time.Millisecond}},
	} {
		for _, n := range networks {
			t.Run(fmt.Sprintf("%s/%s", c.name, n.name), func(t *testing.T) {
				t.Parallel()
				var links []*fault.Link
				a, b := connectedPair(t, n, verbs.MTU1024, func(l transport.Link, seed uint64) transport.Link {
					f := fault.New(l, seed, c.rule)
					links = append(links, f)
					return f
				})
				exercise(t, a, b, []int{0, 1000, 5000, 65537, 300000})
				var hits uint64
				for _, l := range links {
					for _, k := range both(l.Counts()) {
						hits += k.Dropped + k.Duplicated + k.Reordered + k.Corrupted + k.Delayed
					}
				}
				if hits < 10 {
					t.Errorf("only %d packets were hit: the test shows nothing", hits)
				}
			})
		}
	}
}

func both(tx, rx fault.Counts) [2]fault.Counts { return [2]fault.Counts{tx, rx} }

// What no queue pair can use is dropped and counted under its reason.
func TestGarbageIsCountedByReason(t *testing.T) {
	t.Parallel()
	addr := freshIPv4()
	link, err := udp.Open(addr, udp.Config{})
	check(t, err)
	dev, err := verbs.OpenLink(link, verbs.Config{})
	check(t, err)
	defer dev.Close()
	s := newSide(t, dev)
	conn, err := net.Dial("udp", netip.AddrPortFrom(addr, 4791).String())
	check(t, err)
	defer conn.Close()
	for _, c := range []struct {
		reason string
		packet []byte
	}{
		{"unknown_opcode", []byte{0xff, 0, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0, 1, 1, 2, 3, 4}},
		{"wrong_version", []byte{0x04, 0x0f, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0, 1, 1, 2, 3, 4}},
		{"wrong_pad", []byte{0x04, 0x30, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0, 1, 1, 2, 3, 4}},
		{"wrong_security", []byte{0x11, 1, 0x82, 1, 0, 0, 0, 0x11, 0, 0, 0, 1, 1, 2, 3, 4}},
		{"bad_icrc", []byte{0x04, 0, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0, 1, 1, 2, 3, 4}},
	} {
		_, err := conn.Write(c.packet)
		check(t, err)
		for deadline := time.Now().Add(time.Minute); dev.Stats().Drops[c.reason] == 0; {
			if time.Now().After(deadline) {
				t.Fatalf("no drop was counted as %s: %v", c.reason, dev.Stats().Drops)
			}
			var wc [1]verbs.WC
			s.cq.Poll(wc[:]) // handles what has arrived
		}
	}
}

func TestOpenErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	addr := freshIPv4()
	dev, err := verbs.OpenAddr(addr, verbs.Config{})
	check(t, err)
	defer dev.Close()
	for name, c := range map[string]struct {
		open func() error
		want []string
	}{
		"taken": {func() error { _, err := verbs.OpenAddr(addr, verbs.Config{}); return err },
			[]string{"4791", addr.String(), "this process"}},
		"not local": {func() error { _, err := verbs.Open("192.0.2.77"); return err },
			[]string{"192.0.2.77", "127.0.0.1"}},
		"no such name": {func() error { _, err := verbs.Open("no-such-interface0"); return err },
			[]string{"no-such-interface0", "lo"}},
	} {
		err := c.open()
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: the error does not name %s: %v", name, w, err)
			}
		}
	}
}

func TestPathMTUBeyondTheLinkIsRefused(t *testing.T) {
	t.Parallel()
	link := openUDP(t, freshIPv4(), 0)
	dev, err := verbs.OpenLink(smallLink{link}, verbs.Config{})
	check(t, err)
	defer dev.Close()
	s := newSide(t, dev)
	err = s.qp.Connect(t.Context(), verbs.Endpoint{Addr: freshIPv4(), QPN: 77}, verbs.WithMTU(verbs.MTU4096))
	if err == nil || !strings.Contains(err.Error(), "1024") || !strings.Contains(err.Error(), "1500") {
		t.Errorf("a path MTU of 4096 on a link of 1500: %v", err)
	}
}

// smallLink is a link that carries what Ethernet does.
type smallLink struct{ transport.Link }

func (l smallLink) Capabilities() transport.Capabilities {
	c := l.Link.Capabilities()
	c.LinkMTU, c.MTU = 1500, verbs.MTU1024
	return c
}
