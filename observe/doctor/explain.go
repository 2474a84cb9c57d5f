package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/observe/doctor/probe"
)

// Silence says why a peer does not answer RoCEv2.
type Silence struct {
	Text   string // what was found
	Advice string // what to do
}

func (s Silence) String() string { return s.Text + ": " + s.Advice }

// Explain asks a peer that does not answer RoCEv2 in other ways, and says what
// may be the matter. It takes up to three times the timeout.
func Explain(ctx context.Context, p *Path, timeout time.Duration) (Silence, error) {
	return explain(ctx, p.methods(), timeout)
}

func explain(ctx context.Context, methods []Method, timeout time.Duration) (Silence, error) {
	for i, m := range methods {
		a, err := m.Probe(ctx, 0, 100, timeout)
		if err != nil {
			return Silence{}, err
		}
		switch {
		case a.Kind == probe.Silent:
			continue
		case a.Kind == probe.Prohibited && a.Local:
			return Silence{"a firewall of this host forbids it", "allow UDP port 4791 outwards; nft list ruleset shows the rules to root"}, nil
		case a.Kind == probe.Prohibited:
			return Silence{fmt.Sprintf("a firewall at %v forbids it (ICMP)", a.From), "allow UDP port 4791 there, in both directions"}, nil
		case a.Kind == probe.Unreachable && a.Local:
			return Silence{"there is no way to that host: no route, or it does not answer ARP or neighbour discovery", "check the address, the cable and the routes (ip route get)"}, nil
		case a.Kind == probe.Unreachable:
			return Silence{fmt.Sprintf("%v has no way to that host (ICMP)", a.From), "check the address and the routes there"}, nil
		case i == 0 && a.Kind == probe.Refused:
			return Silence{"the host is there, and no process has UDP port 4791 (ICMP port unreachable)", "start RoCEv2 on it: rocev2d or a rocev2 server on that address, or the kernel's Soft-RoCE (modprobe rdma_rxe; rdma link add rxe0 type rxe netdev IFACE)"}, nil
		}
		return Silence{fmt.Sprintf("the host is there (%s: %v) and is silent at UDP port 4791", m.Name, a.Kind),
			"a firewall drops UDP port 4791 here or there, or the RoCEv2 there has no connection manager (modprobe rdma_cm), or none on that address"}, nil
	}
	return Silence{"nothing comes back at all", "no host has that address, or a firewall drops everything without a word; check the address, then the firewalls on both sides"}, nil
}
