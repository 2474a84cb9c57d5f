package lab

import (
	"errors"
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/switches"
	"github.com/gosoftroce/rocev2/fabric/topology"
)

// Switch is what switches do beyond ECMP, RED and pauses: programs of package
// switches, or one's own.
type Switch struct {
	INT          bool  `toml:"int"` // telemetry for congestion control, also where that does not ask for it
	Trim         bool  // a full lossy queue cuts payloads off, instead of dropping
	Credit       bool  // credits instead of pauses
	CreditBuffer Bytes `toml:"credit_buffer"` // of each port and class; 0: what reserve and headroom have with pauses

	// Program is one's own, at each switch, before those above, and
	// HostProgram that at the ports of hosts.
	Program, HostProgram network.Program `toml:"-"`
}

// The routings of package network, in the order of their names. Those after
// them are programs.
var builtInRoutings = []network.Routing{network.ECMP, network.Flowlet, network.LeastQueue, network.Spray}

// set reports whether something is set.
func (w *Switch) set() bool {
	return w.INT || w.Trim || w.Credit || w.CreditBuffer != 0 || w.Program != nil || w.HostProgram != nil
}

// check says what is wrong with the settings, or does not go together.
func (w *Switch) check(n *Network) error {
	switch {
	case w.CreditBuffer < 0 || w.CreditBuffer > 1<<30:
		return fmt.Errorf("network.switch.credit_buffer is %v: it is above 0, and at most 1GiB", exact(w.CreditBuffer))
	case w.CreditBuffer > 0 && !w.Credit:
		return errors.New("network.switch.credit_buffer is for credit = true")
	case w.Credit && n.Lossy:
		return errors.New("network.switch.credit is for lossless classes, and there are none with lossy")
	case w.Credit && n.Watchdog != 0:
		return errors.New("network.watchdog ends pauses, and there are none with credit")
	case w.Credit && n.Alpha != nil:
		return errors.New("network.alpha is a threshold of pauses, and there are none with credit")
	case w.Trim && !n.Lossy:
		return errors.New("network.switch.trim is for lossy = true: where classes pause no queue is full")
	}
	return nil
}

// program has the switches of a plan run the programs that are wanted.
func (n *Network) program(g *topology.Graph, p *topology.Plan) error {
	w := &n.Switch
	programs := []network.Program{w.Program}
	p.HostProgram = w.HostProgram
	switch n.Routing {
	case "drill":
		programs = append(programs, switches.DRILL{}.Program)
	case "weighted":
		programs = append(programs, switches.Weighted{}.Program)
	}
	if w.Trim {
		programs = append(programs, switches.Trim{Classes: ^n.headerClass(p), DSCP: p.Profile.CNP}.Program)
	}
	if w.INT {
		telemetry := switches.INT{}
		programs = append(programs, telemetry.Program)
		p.Trail = n.mostHops(g)
		p.MTU = network.DefaultMTU + telemetry.Wire(p.Trail)
	}
	if w.Credit {
		classes := losslessOf(&p.Profile)
		if classes == 0 {
			return fmt.Errorf("network.switch.credit is for lossless classes, and profile %q has none", p.Profile.Name)
		}
		if least := 2 * int64(orDefault(p.MTU, network.DefaultMTU)); w.CreditBuffer > 0 && int64(w.CreditBuffer) < least {
			return fmt.Errorf("network.switch.credit_buffer is %v: it is at least two packets, %v", w.CreditBuffer, Bytes(least))
		}
		credit := switches.Credit{Classes: classes}
		programs = append(programs, credit.Program)
		p.HostProgram = switches.Join(p.HostProgram, credit.Program)
		p.Tune = n.credits(g, p)
	}
	p.Program = switches.Join(programs...)
	return nil
}

// headerClass returns the class of headers that are left of packets: that of
// CNPs, which is strict in most profiles.
func (n *Network) headerClass(p *topology.Plan) uint8 {
	class := p.Profile.CNP / 8
	if p.Profile.DSCP != nil {
		class = p.Profile.DSCP[p.Profile.CNP]
	}
	return 1 << class
}

// mostHops returns how many switches a packet has room for: all where there are
// few, twice up and down in a Clos network, some more in networks of one's own.
func (n *Network) mostHops(g *topology.Graph) int {
	const ofClos, others = 8, 32
	switch n.Topology {
	case "ring", "links", "file", "": // of a program
		return min(int(g.Switches()), others)
	}
	return min(int(g.Switches()), ofClos)
}

// mostWithTrail returns how many packets may be under way that have room for
// some hops: these take at most 1 GiB.
func mostWithTrail(hops int) uint64 {
	const hopBytes, mostBytes = 40, 1 << 30
	if hops == 0 {
		return mostInside
	}
	return min(mostInside, mostBytes/uint64(hops*hopBytes))
}

func losslessOf(p *topology.Profile) (classes uint8) {
	for i := range p.Classes {
		if p.Classes[i].Lossless {
			classes |= 1 << i
		}
	}
	return classes
}

// credits returns what gives the classes that would pause a buffer for credits.
// It has the memory that reserve, headroom and the packet set aside have with
// pauses, or what the scenario says; what is shared stays as it is then, too,
// unless the scenario says how much there is in all.
func (n *Network) credits(g *topology.Graph, p *topology.Plan) func(int32, *network.Switch) {
	before, mtu := p.Tune, int64(orDefault(p.MTU, network.DefaultMTU))
	return func(node int32, s *network.Switch) {
		before(node, s)
		change := func(c *[network.NumClasses]network.Class) (more int64) {
			for i := range c {
				k := &c[i]
				if !k.Lossless {
					continue
				}
				had := k.Reserve + k.Headroom + mtu
				k.Lossless, k.Headroom, k.EgressMax = false, 0, 0
				k.Reserve = orDefault(int64(n.Switch.CreditBuffer), had)
				more += k.Reserve - had
			}
			return more
		}
		more := change(&s.Classes) * int64(len(g.Ports(node)))
		if s.Ports != nil {
			more = 0
		}
		for i := range s.Ports {
			more += change(&s.Ports[i])
		}
		if n.Buffer == 0 {
			s.Buffer = max(s.Buffer+more, 1) // 1: it is too small for pauses, too
		}
	}
}
