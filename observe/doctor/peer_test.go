package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/observe/doctor/ping"
	"github.com/gosoftroce/rocev2/observe/doctor/probe"
)

// answers is a peer that answers that many of the pings.
type answers int

func (a answers) Run(_ context.Context, c ping.Config) (ping.Statistics, error) {
	return ping.Statistics{Sent: c.Count, Received: min(int(a), c.Count), Min: time.Millisecond, Avg: 2 * time.Millisecond, Max: 3 * time.Millisecond}, nil
}

func TestRunPeer(t *testing.T) {
	t.Parallel()
	peer := netip.MustParseAddr("198.51.100.9")
	refusing := func(routers ...router) []Method {
		return []Method{{"UDP", &way{routers: routers, peer: peer, end: probe.Refused}}}
	}
	mute := []Method{{"UDP", always{}}}
	for name, c := range map[string]struct {
		pinger  PingRunner
		methods []Method
		mtu     int
		rate    func(context.Context) (string, error)
		want    map[string]string // of a check: status and words
	}{
		"well": {answers(20), refusing(), 9000, func(context.Context) (string, error) { return "10 Gb/s", nil },
			map[string]string{"ping": "ok 20 of 20", "loss": "ok none of 20", "path mtu": "ok 4096 fits", "rate": "ok 10 Gb/s"}},
		"loss":       {answers(18), refusing(), 1500, nil, map[string]string{"loss": "warn 2 of 20", "path mtu": "ok 1024 fits", "rate": "not checked no server"}},
		"silence":    {answers(0), refusing(), 1500, nil, map[string]string{"ping": "problem no process has UDP port 4791"}},
		"darkness":   {answers(0), mute, 1500, nil, map[string]string{"ping": "problem nothing comes back", "path mtu": "not checked keeps silent"}},
		"no device":  {nil, refusing(), 1500, nil, map[string]string{"ping": "not checked somebody has it"}},
		"no ICMP":    {answers(0), nil, 1500, nil, map[string]string{"ping": "problem none of 20", "path mtu": "not checked ICMP errors"}},
		"narrow":     {answers(20), refusing(router{addr: "192.0.2.1", mtu: 1500}), 9000, nil, map[string]string{"path mtu": "warn a path MTU of 1024 fits"}},
		"black hole": {answers(20), refusing(router{addr: "192.0.2.1", mtu: 1500, mute: true}), 9000, nil, map[string]string{"path mtu": "problem vanish without a word"}},
		"too narrow": {answers(20), refusing(router{addr: "192.0.2.1", mtu: 300}), 9000, nil, map[string]string{"path mtu": "problem no path MTU fits"}},
		"no server": {answers(20), refusing(), 1500, func(context.Context) (string, error) { return "", fmt.Errorf("x: %w", ErrNoServer) },
			map[string]string{"rate": "not checked no server"}},
		"rate fails": {answers(20), refusing(), 1500, func(context.Context) (string, error) { return "", errors.New("broken") },
			map[string]string{"rate": "problem broken"}},
	} {
		cfg := PeerConfig{Peer: peer, MTU: c.mtu, Pinger: c.pinger, WhyNoPing: errors.New("somebody has it"), Rate: c.rate, methods: c.methods}
		list, err := RunPeer(t.Context(), cfg)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got := make(map[string]string)
		for _, f := range list {
			got[f.Check] = f.Status.String() + " " + f.Text
			if f.Status >= Warning && f.Status != NotChecked && f.Advice == "" && f.Check != "rate" && f.Check != "ping" {
				t.Errorf("%s: no advice: %v", name, f)
			}
		}
		for check, want := range c.want {
			status, words, _ := strings.Cut(want, " ")
			if status == "not" {
				status, words = "not checked", strings.TrimPrefix(want, "not checked ")
			}
			if !strings.HasPrefix(got[check], status+" ") || !strings.Contains(got[check], words) {
				t.Errorf("%s: %s is %q; want %q", name, check, got[check], want)
			}
		}
	}
}

// TestKeysOfPeer: where a peer is silent, it is told whether that is because of
// keys.
func TestKeysOfPeer(t *testing.T) {
	t.Parallel()
	peer := netip.MustParseAddr("198.51.100.9")
	for want, c := range map[string]struct {
		sealed, has bool
		err         error
	}{
		"problem its device is secured, it seems": {},
		"problem its device is not secured":       {sealed: true, err: syscall.ECONNREFUSED},
		"problem cannot connect to TCP port 4791": {sealed: true, err: context.DeadlineExceeded},
		"problem one side refuses the other":      {sealed: true},
		"ok there are keys with the peer":         {sealed: true, has: true},
		"":                                        {err: syscall.ECONNREFUSED},
	} {
		cfg := PeerConfig{Peer: peer, MTU: 1500, Pinger: answers(0), Sealed: c.sealed, Connect: func(context.Context) error { return c.err },
			KeyHosts: func() []netip.Addr {
				if c.has {
					return []netip.Addr{peer}
				}
				return nil
			}}
		list, err := RunPeer(t.Context(), cfg)
		if err != nil {
			t.Error(err)
		}
		got := ""
		for _, f := range list {
			if f.Check == "keys" {
				got = f.Status.String() + " " + f.Text
				if f.Status == Problem && f.Advice == "" {
					t.Errorf("no advice: %v", f)
				}
			}
		}
		status, words, _ := strings.Cut(want, " ")
		if !strings.HasPrefix(got, status) || !strings.Contains(got, words) || want == "" && got != "" {
			t.Errorf("%q; want %q", got, want)
		}
	}
}

// TestFirewallOfKeys: a rule that drops the port where hosts agree on keys is a
// problem where a device is secured.
func TestFirewallOfKeys(t *testing.T) {
	t.Parallel()
	for _, rules := range [][]rule{
		nftRules("table inet t {\n chain i {\n  type filter hook input priority 0; policy accept;\n  tcp dport { 22, 4791 } drop\n }\n}\n"),
		iptablesRules("-P INPUT ACCEPT\n-A INPUT -p tcp -m tcp --dport 4791 -j DROP\n"),
	} {
		if list := judge(rules, true); len(list) != 1 || list[0].Status != Problem || !strings.Contains(list[0].Text, "TCP port 4791") {
			t.Errorf("%v", list)
		}
		if list := judge(rules, false); len(list) != 0 {
			t.Errorf("%v", list)
		}
	}
}
