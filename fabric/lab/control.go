package lab

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gosoftroce/rocev2/fabric/adapter"
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2"
)

// congestion returns the control of the queue pairs of hosts with cables of a
// rate.
func (c *Adapter) congestion(line uint64) (choice cc.Choice, err error) {
	if c.Control != "" && c.Controller != nil {
		return choice, errors.New("control and Adapter.Controller choose two: take one of them out")
	}
	if c.Control == "" {
		return choice, nil
	}
	if choice, err = cc.ParseChoice(c.Control); err != nil {
		return choice, fmt.Errorf("control: %w", err)
	}
	if choice.Bytes != 0 && c.Window != 0 {
		return choice, fmt.Errorf("control is %q, and window %v: take one of the two sizes out", c.Control, c.Window)
	}
	choice.Line = orDefault(choice.Line, line)
	choice.Burst = orDefault(choice.Burst, 1) // timers are exact here
	return choice, nil
}

// maker returns what makes the congestion control of a queue pair whose packets
// go by a path; nil for the engine's own. Timers are exact here, and packets
// pass no operating system.
func (of *connecting) maker(c *Adapter, choice cc.Choice) (func(path) cc.Controller, error) {
	mtu := of.mtu
	if c.Controller != nil {
		return func(path) cc.Controller { return c.Controller() }, nil
	}
	bytes := max(orDefault(int(c.Window), 8<<20), choice.Bytes)
	most := cc.Config{MaxBytes: bytes, MaxPSNs: max(1<<13, packetsOf(bytes, mtu))}
	hpcc, swift, timely, err := choice.Parameters()
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	switch choice.Law {
	case cc.LawWindow:
		return nil, nil
	case cc.LawStatic:
		bytes := orDefault(choice.Bytes, int(c.Window))
		return func(path) cc.Controller { return cc.NewStatic(bytes, most) }, nil
	case cc.LawHPCC:
		if hpcc.RTT == 0 {
			hpcc.RTT = of.roundTrip()
		}
		if err := hpcc.Check(); err != nil {
			return nil, fmt.Errorf("control: %w", err)
		}
		return func(path) cc.Controller { return cc.NewHPCC(hpcc, most) }, nil
	case cc.LawSwift:
		// As the others it begins with what fills the path. The paper
		// does not say how.
		most.InitialBytes = min(windowOf(of.roundTrip(), choice.Line, mtu), bytes)
		return func(there path) cc.Controller {
			return cc.NewSwift(there.swift(swift, mtu), most)
		}, nil
	case cc.LawTimely:
		return func(path) cc.Controller { return cc.NewTimely(cc.NewStatic(int(c.Window), most), timely) }, nil
	}
	p, err := choice.Profile()
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	return func(path) cc.Controller { return cc.NewDCQCN(cc.NewStatic(int(c.Window), most), p) }, nil
}

// The target of Swift where none is said, without the path: it is for cables
// that take as long as each switch adds (see cc.SwiftConfig).
const swiftTarget = 20 * time.Microsecond

// swift returns the parameters of Swift for a path: its switches, and if no
// target is said also how long it is. The paper scales the target by the
// topology: a base for a network of one hop, and as much more for each further
// one as it takes (Kumar et al., SIGCOMM 2020, section 3.5). So a cable that
// takes longer than that, there and back, adds the rest.
func (p path) swift(c cc.SwiftConfig, mtu rocev2.MTU) cc.SwiftConfig {
	if c.Hops == 0 {
		c.Hops = max(len(p)-1, 0)
	}
	if c.Target != 0 {
		return c
	}
	c.Hop = cmp.Or(c.Hop, swiftTarget*100/655)
	c.Range = cmp.Or(c.Range, 5*swiftTarget)
	var more Time
	for _, h := range p {
		took := 2*h.delay + h.takes(network.WireSize(ipBytes+rethBytes+mtu.Bytes())) + h.takes(network.WireSize(ipBytes+aethBytes))
		more += max(took-Time(event.Of(c.Hop)), 0)
	}
	c.Target = min(swiftTarget+more.duration(), time.Second)
	return c
}

// windowOf returns how the packets that a rate sends in a time count in flight.
func windowOf(t time.Duration, rate uint64, mtu rocev2.MTU) int {
	packets := scaled(rate/8, uint64(t), 1e9) / int64(mtu.Bytes()+cc.WireOverhead)
	return int(min(packets, cc.MaxPSNs)) * (mtu.Bytes() + cc.PacketOverhead)
}

// telemetry reports whether congestion control looks at what switches tell
// (INT): then the switches do tell.
func (s *Scenario) telemetry() bool {
	c := &s.Adapter
	if c.Controller != nil {
		_, ok := c.Controller().(cc.Telemetry)
		return ok
	}
	looks := func(control string) bool {
		choice, err := cc.ParseChoice(control)
		return err == nil && choice.Law == cc.LawHPCC
	}
	return looks(c.Control) || slices.ContainsFunc(s.Traffic, func(t Traffic) bool { return looks(t.Control) })
}

// connection says how two hosts of a tenant are connected.
func (t *tenant) connection(r *run, src, dst int) adapter.Connection {
	c := t.conn
	if t.control != nil {
		there := r.pathOf(src, dst) // the way back is as long
		c.Congestion = func() cc.Controller { return t.control(there) }
	}
	return c
}

// roundTrip returns how long a packet and its acknowledgement take between two
// hosts that are far from each other, without queues: the one that is farthest
// from host 0, and the one that is farthest from that.
func (of *connecting) roundTrip() time.Duration {
	r, mtu := of.r, of.mtu
	var most Time
	from := 0
	for range 2 {
		farthest := from
		for to := range int(r.g.Hosts()) {
			if to == from {
				continue
			}
			there, back := r.pathOf(from, to), r.pathOf(to, from)
			t := there.alone(network.WireSize(ipBytes+rethBytes+mtu.Bytes())) + back.alone(network.WireSize(ipBytes+aethBytes))
			if t > most {
				most, farthest = t, to
			}
		}
		from = farthest
	}
	clear(r.paths) // of a large network they would take memory
	return time.Duration((most + Time(event.Nanosecond) - 1) / Time(event.Nanosecond))
}
