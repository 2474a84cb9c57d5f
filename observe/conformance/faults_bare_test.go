package conformance_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/observe/conformance"
	"github.com/gosoftroce/rocev2/observe/conformance/rules"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// runBare tests rules against a device with the fault, where a program listens
// and there is no target.
func (f *fault) runBare(t *testing.T, list []conformance.Rule) *conformance.Report {
	here, there := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	dev, err := verbs.OpenLink(&faulty{transport.Wrapper{Link: there}, f.plant()}, verbs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	l, err := cm.Listen(dev, netip.AddrPortFrom(dev.Addr(), 7174), cm.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go waits(ctx, t, dev, l)
	r, err := conformance.Run(ctx, conformance.Config{Link: here, Listener: 7174, Peer: dev.Addr(), Rules: list})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestEveryBareRuleCanFail: where a connection is all there is, memory and
// completions show nothing, and still each rule is broken by one of the faults
// that it is there for.
func TestEveryBareRuleCanFail(t *testing.T) {
	t.Parallel()
	failed := map[string]bool{}
	for _, f := range faults() {
		all, err := conformance.Select(strings.Fields(f.rules))
		if err != nil {
			t.Fatal(err)
		}
		var bare []conformance.Rule
		for _, r := range all {
			if r.Bare && !failed[r.ID] {
				bare = append(bare, r)
			}
		}
		if len(bare) == 0 {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			for _, res := range f.runBare(t, bare).Results {
				failed[res.ID] = failed[res.ID] || res.Verdict == conformance.Fail
			}
		})
	}
	for _, r := range rules.All() {
		if r.Bare && !failed[r.ID] {
			t.Errorf("rule %s finds none of its faults without a target", r.ID)
		}
	}
}
