package switches_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/switches"
)

// What package network has built in can be written as a program: the runs are
// equal bit by bit. So the hooks see and draw all that the built-in rules do,
// and those need not be programs.
func TestBuiltIn(t *testing.T) {
	t.Parallel()
	red := network.RED{Kmin: 5_000, Kmax: 60_000, Pmax: 300_000}
	for _, row := range []struct {
		what    string
		routing network.Routing
		program network.Program
	}{
		{"ECMP", network.ECMP, switches.ECMP},
		{"Flowlet", network.Flowlet, switches.Flowlet(2 * us)},
		{"LeastQueue", network.LeastQueue, switches.LeastQueue},
		{"Spray", network.Spray, switches.Spray},
	} {
		var digests []uint64
		for _, programmed := range []bool{false, true} {
			w := build(t, 1, func(c *network.Config) {
				for i := range c.Switches {
					s := &c.Switches[i]
					s.Routing, s.Gap = row.routing, 2*us
					s.Classes[3].RED = red
					s.Ports = nil
					if programmed {
						s.Routing, s.Classes[3].RED = network.ECMP, network.RED{}
						if row.routing == network.Spray {
							s.Program = switches.Join(row.program, switches.RED(red))
						} else {
							s.Program = switches.Join(switches.RED(red), row.program)
						}
					}
				}
			})
			w.finish(t)
			digests = append(digests, w.Digest())
			if marks := w.Totals().Marks; (marks == 0) != programmed {
				t.Errorf("%s, as a program: %v: %d marks by Class.RED", row.what, programmed, marks)
			}
		}
		if digests[0] != digests[1] {
			t.Errorf("%s: digest %x, as a program %x", row.what, digests[0], digests[1])
		}
	}
}

// all are the programs of the package, by name, with what they need of a
// configuration.
var all = map[string]func(*network.Config){
	"INT":      func(c *network.Config) { program(c, switches.INT{}.Program) },
	"DRILL":    func(c *network.Config) { program(c, switches.DRILL{}.Program) },
	"Weighted": func(c *network.Config) { program(c, switches.Weighted{}.Program) },
	"Trim":     trimming,
	"Credit":   credits,
	"all": func(c *network.Config) {
		credits(c)
		host := c.HostProgram
		program(c, switches.Join(switches.INT{}.Program, switches.DRILL{}.Program, switches.Trim{Classes: 1, DSCP: headClass * 8}.Program, host))
	},
}

func trimming(c *network.Config) {
	for i := range c.Switches {
		s := &c.Switches[i]
		s.Classes[3].EgressMax, s.Classes[headClass].Strict = 8*dataSize, true
		s.Ports = nil
	}
	program(c, switches.Trim{Classes: 1 << 3, DSCP: headClass * 8}.Program)
}

func credits(c *network.Config) {
	credit := switches.Credit{Classes: 1 << 3}
	for i := range c.Switches {
		c.Switches[i].Classes[3].Reserve = 60_000
		c.Switches[i].Ports = nil
	}
	program(c, credit.Program)
	c.HostProgram = credit.Program
}

// A run with programs is the same in one part and in four, with cables that
// lose packets and go down, and its books balance.
func TestParts(t *testing.T) {
	t.Parallel()
	for what, edit := range all {
		run := func(parts int) string {
			w := build(t, parts, func(c *network.Config) {
				edit(c)
				for i := range c.Cables {
					c.Cables[i].Loss = 3_000_000
				}
			})
			cable := len(w.hosts) + 1
			w.At(20*us, func() { w.SetCable(cable, false) })
			w.At(31*us, func() { w.SetCable(cable, true) })
			w.finish(t)
			whole, trimmed := w.got()
			hops := 0
			for _, h := range w.hosts {
				hops += h.hops
			}
			return fmt.Sprint(w.Totals(), whole, trimmed, hops, w.Digest())
		}
		if one, four := run(1), run(4); one != four {
			t.Errorf("%s: one part:\n%s\nfour parts:\n%s", what, one, four)
		}
	}
}

// INT: each switch of a way adds its hop, and the bytes of HPCC's header.
func TestINT(t *testing.T) {
	t.Parallel()
	var grown, hops int
	w := build(t, 1, func(c *network.Config) {
		program(c, switches.INT{}.Program)
		c.HostProgram = func(*network.View) network.Hooks {
			return network.Hooks{Enqueue: func(p *network.Packet, _ network.Place, _ network.Drop) network.Verdict {
				if p.DSCP == dataDSCP {
					grown += int(p.Size) - dataSize
				} else if p.Size != 100 {
					t.Errorf("an acknowledgement of %d bytes", p.Size)
				}
				return network.Default
			}}
		}
	})
	w.finish(t)
	for _, h := range w.hosts {
		hops += h.hops
	}
	whole, _ := w.got()
	if whole == 0 || hops != 3*whole || grown != whole*3*8 {
		t.Errorf("%d packets with %d hops have grown by %d bytes: want 3 hops and 24 bytes each", whole, hops, grown)
	}
	if got := (switches.INT{}).Wire(5); got != 42 {
		t.Errorf("5 hops take %d bytes, want the paper's 42", got)
	}
}

// Without room in the packet INT adds nothing, and says so.
func TestINTWithoutRoom(t *testing.T) {
	t.Parallel()
	w := build(t, 1, func(c *network.Config) {
		program(c, switches.INT{}.Program)
		c.Trail = 2
	})
	w.finish(t)
	whole, _ := w.got()
	if n := w.Totals().Unnoted; n != uint64(whole) {
		t.Errorf("%d hops had no room, want one of each of %d packets", n, whole)
	}
}

// Trim: an incast of one window loses no packet without a trace, and the
// headers come first.
func TestTrim(t *testing.T) {
	t.Parallel()
	const senders, each = 12, 40
	w := build(t, 1, trimming)
	for i, h := range w.hosts {
		h.to, h.left = 15, 0
		if i < senders {
			h.left = each
		}
	}
	w.finish(t)
	whole, trimmed := w.got()
	if whole+trimmed != senders*each || trimmed == 0 || whole == 0 || w.Totals().Dropped() != 0 {
		t.Errorf("%d packets came whole and %d trimmed, of %d; %d were dropped", whole, trimmed, senders*each, w.Totals().Dropped())
	}
	// 100 Gb/s: 88 ns a packet, 6.72 ns a header; four cables of 1 us.
	busy := network.Time(whole)*88*event.Nanosecond + network.Time(trimmed)*6720 + 4*us
	if last := w.hosts[15].last; last > busy+busy/10 {
		t.Errorf("the last packet came at %v: the cable is busy until %v", last, busy)
	}
}

// Credits: nothing is lost, whatever the incast, and no port has stored more
// than its buffer. With cables that lose packets and go down nothing stalls.
func TestCredit(t *testing.T) {
	t.Parallel()
	for _, loss := range []uint32{0, 10_000_000} {
		w := build(t, 1, func(c *network.Config) {
			credits(c)
			for i := range c.Cables {
				c.Cables[i].Loss = loss
			}
		})
		for _, h := range w.hosts {
			h.to, h.left, h.window = 15, 400, 400
		}
		most := int64(0)
		for !w.Idle() || w.Now() == 0 {
			w.Run(w.Now() + us)
			for sw := range 7 {
				for port := range w.Ports(16 + sw) {
					used, _, _ := w.Port(16+sw, port).Stored(3)
					most = max(most, used)
				}
			}
		}
		w.finish(t)
		totals := w.Totals()
		whole, _ := w.got()
		if totals.XOFFs != 0 || most > 60_000 || most < 30_000 || totals.Frames == 0 {
			t.Errorf("%d pauses, %d frames, and a port has stored %d bytes of 60000", totals.XOFFs, totals.Frames, most)
		}
		lost := int(totals.ClassDrops[3])
		if loss == 0 && totals.Dropped() != 0 || whole+lost != 15*400+400 || uint64(lost) > totals.Drops[network.CableLoss] {
			t.Errorf("loss %d: %d arrived, dropped %v", loss, whole, totals.Drops)
		}
	}
}

// A buffer for less than two packets cannot do, and Join says what it cannot.
func TestPanics(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]network.Program{
		"less than two packets of 1200": switches.Credit{Classes: 1 << 3}.Program,
		"two programs that route":       switches.Join(switches.ECMP, switches.Spray),
		"that have a timer":             switches.Join(timer, timer),
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("panic %q, want %q", got, want)
				}
			}()
			build(t, 1, func(c *network.Config) { program(c, p) })
		}()
	}
	if switches.Join(nil, nil) != nil {
		t.Error("Join of nothing is a program")
	}
}

func timer(*network.View) network.Hooks { return network.Hooks{Timer: func() {}} }
