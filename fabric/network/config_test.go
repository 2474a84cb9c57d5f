package network

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// Every wrong setting gets an error that says where and what.
func TestConfigErrors(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		edit func(*Config)
		want string
	}{
		{func(c *Config) { c.Hosts = 0 }, "0 hosts"},
		{func(c *Config) { c.Hosts = 70_000 }, "70000 hosts"},
		{func(c *Config) { c.MTU = 20 }, "MTU of 20 bytes"},
		{func(c *Config) { c.MTU = 70_000 }, "MTU of 70000 bytes"},
		{func(c *Config) { c.HostDSCP = make([]uint8, 3) }, "HostDSCP: 3 entries"},
		{func(c *Config) { c.Converge = -1 }, "Converge"},
		{func(c *Config) { c.Trail = 65 }, "room for 65 hops"},
		{func(c *Config) { c.Trail = -1 }, "room for -1 hops"},
		{func(c *Config) { c.Cables[1].A = 9 }, "cable 1: end 9 is no node"},
		{func(c *Config) { c.Cables[1].B = -1 }, "cable 1: end -1 is no node"},
		{func(c *Config) { c.Cables[1].A = c.Cables[1].B }, "cable 1: both ends"},
		{func(c *Config) { c.Cables[1].Rate = 0 }, "cable 1: rate of 0"},
		{func(c *Config) { c.Cables[1].Delay = -1 }, "cable 1: delay"},
		{func(c *Config) { c.Cables[1].Loss = billion + 1 }, "cable 1: loss"},
		{func(c *Config) { c.Tables = nil }, "0 tables for 1 switches"},
		{func(c *Config) { c.Tables[0].Set = c.Tables[0].Set[:1] }, "table of switch 0: it has 1 entries for 3 hosts"},
		{func(c *Config) { c.Tables[0].Set[1] = 5 }, "table of switch 0: host 1: there is no set 5"},
		{func(c *Config) { c.Tables[0].Sets[1] = []uint16{8} }, "table of switch 0: set 1: there is no port 8"},
		{func(c *Config) { c.Switches[0].Buffer = 0 }, "switch 0: buffer of 0"},
		{func(c *Config) { c.Switches[0].Buffer = 20_000; c.Switches[0].Classes[3].Lossless = true }, "switch 0: buffer of 20000 bytes: 3 ports need"},
		{func(c *Config) { c.Switches[0].DSCP = make([]uint8, 65) }, "switch 0: DSCP: 65 entries"},
		{func(c *Config) { c.Switches[0].DSCP = make([]uint8, 64); c.Switches[0].DSCP[9] = 8 }, "DSCP 9 has class 8"},
		{func(c *Config) { c.Switches[0].Routing = 9 }, "switch 0: routing 9"},
		{func(c *Config) { c.Switches[0].Gap = -1 }, "switch 0: times"},
		{func(c *Config) { c.Switches[0].Classes[2].Reserve = -1 }, "switch 0: class 2: sizes"},
		{func(c *Config) { c.Switches[0].Classes[2].EgressMax = 1 << 50 }, "switch 0: class 2: sizes"},
		{func(c *Config) { c.Switches[0].Classes[2].Alpha = 17 }, "switch 0: class 2: thresholds: Alpha 17"},
		{func(c *Config) { c.Switches[0].Classes[2].RED = RED{2000, 1000, 1} }, "switch 0: class 2: marks: RED from 2000 to 1000"},
		{func(c *Config) { c.Switches[0].Classes[2].RED.Pmax = million + 1 }, "switch 0: class 2: marks: RED with Pmax 1000001"},
		{func(c *Config) { c.Switches[0].Ports = make([][NumClasses]Class, 2) }, "Ports describes 2 ports, but 3 cables"},
		{func(c *Config) {
			c.Switches[0].Ports = make([][NumClasses]Class, 3)
			c.Switches[0].Ports[1][4].Alpha = -99
		}, "port 1: class 4"},
	} {
		c := star(3, Switch{Buffer: 1 << 20}, 100*gbit, event.Microsecond)
		if _, err := New(c); err != nil {
			t.Fatal(err)
		}
		row.edit(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), row.want) || !strings.HasPrefix(err.Error(), "network: ") {
			t.Errorf("error %q, want %q", err, row.want)
		}
	}
}

// A bad table from Reroute changes nothing, and Check says so.
func TestBadReroute(t *testing.T) {
	t.Parallel()
	c := star(2, Switch{Buffer: 1 << 20}, 100*gbit, event.Microsecond)
	c.Reroute = func([]bool) []Table { return make([]Table, 3) }
	n, hosts := build(t, c)
	n.SetCable(0, false)
	n.SetCable(0, true)
	n.Run(event.Microsecond)
	if err := n.Check(); err == nil || !strings.Contains(err.Error(), "3 tables for 1 switches") {
		t.Errorf("error %v", err)
	}
	hosts[0].packets = repeat(Packet{Dst: 1, Size: 100}, 3)
	n.Kick(0, 0)
	n.Run(event.Never)
	if n.Totals().Delivered != 3 {
		t.Errorf("%+v", n.Totals())
	}
}

// Ports of a switch may differ.
func TestPortsDiffer(t *testing.T) {
	t.Parallel()
	sw := Switch{Buffer: 1 << 20, Ports: make([][NumClasses]Class, 3)}
	sw.Ports[1][0].EgressMax = 2000
	sw.Ports[2][0].EgressMax = 5000
	n, hosts := build(t, star(3, sw, 100*gbit, event.Microsecond))
	for _, port := range []int{1, 2} {
		n.Pause(port, 0, 1)
		hosts[0].packets = append(hosts[0].packets, repeat(Packet{Dst: uint16(port), Size: 1000}, 10)...)
	}
	n.Kick(0, 0)
	n.Run(event.Millisecond)
	if a, b := n.Port(3, 1).Queued(0), n.Port(3, 2).Queued(0); a != 2000 || b != 5000 {
		t.Errorf("%d and %d bytes are queued, want 2000 and 5000", a, b)
	}
}

// words gives out numbers of a fuzzer's input.
type words []byte

func (w *words) next() int64 {
	var b [8]byte
	*w = (*w)[copy(b[:], *w):]
	return int64(binary.LittleEndian.Uint64(b[:]))
}

func (w *words) small(n int64) int64 { return int64(uint64(w.next()) % uint64(n)) }

// Whatever a configuration says, New returns an error, or a network in which
// packets end.
func FuzzConfig(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("some switches and some cables, 64 bytes of which are not too few, are there"))
	f.Fuzz(func(t *testing.T, text []byte) {
		w := words(text)
		c := Config{Hosts: int(w.small(5)), MTU: int(w.next()), Converge: Time(w.next())}
		for range w.small(3) {
			sw := Switch{Buffer: w.next(), CutThrough: w.small(2) == 0, Routing: Routing(w.small(6)), Gap: Time(w.next()),
				Watchdog: WatchdogConfig{Time(w.next()), Time(w.next())}}
			if w.small(4) == 0 {
				sw.DSCP = make([]uint8, 64)
				sw.DSCP[w.small(64)] = uint8(w.next())
			}
			for range w.small(3) {
				sw.Classes[w.small(NumClasses)] = Class{Lossless: w.small(2) == 0, Reserve: w.next(), Headroom: w.next(), Alpha: int8(w.next()),
					XONOffset: w.next(), EgressAlpha: int8(w.next()), EgressMax: w.next(), Strict: w.small(2) == 0, Weight: uint16(w.next()),
					RED: RED{w.next(), w.next(), uint32(w.next())}}
			}
			c.Switches = append(c.Switches, sw)
		}
		for range w.small(6) {
			c.Cables = append(c.Cables, Cable{A: int(w.small(8)) - 1, B: int(w.small(8)) - 1, Rate: w.next(), Delay: Time(w.next()), Loss: uint32(w.next())})
		}
		for range w.small(4) {
			t := Table{Set: make([]uint16, w.small(6)), Sets: [][]uint16{{uint16(w.small(4))}, {0, uint16(w.small(4))}}}
			for i := range t.Set {
				t.Set[i] = uint16(w.small(3))
			}
			c.Tables = append(c.Tables, t)
		}
		n, err := New(c)
		if err != nil {
			return
		}
		for h := range c.Hosts {
			s := &source{}
			for d := range uint16(c.Hosts + 1) {
				s.packets = append(s.packets, repeat(Packet{Dst: d, Size: uint16(w.next()), ECN: uint8(w.next()), Hops: uint8(w.next())}, 3)...)
			}
			n.Attach(h, s)
			for p := range n.Ports(h) {
				n.Kick(h, p)
			}
		}
		n.Run(event.Never)
		if err := n.Check(); err != nil {
			t.Fatal(err)
		}
	})
}
