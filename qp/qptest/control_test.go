package qptest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/qp/cc"
)

// controllerOf makes the congestion control of that name; nil is the window
// that a queue pair has by default.
func controllerOf(name string, c cc.Config, line uint64, burst int) (cc.Controller, error) {
	var p cc.Profile
	switch name {
	case "window":
		return nil, nil
	case "static":
		return cc.NewStatic(0, c), nil
	case "paper":
		p = cc.PaperProfile(line)
	case "adapter":
		p = cc.AdapterProfile(line)
	default:
		return nil, fmt.Errorf("cc=%s: there are window, static, paper and adapter", name)
	}
	p.Min, p.Burst = min(p.Min, line/100), burst
	return cc.NewDCQCN(cc.NewStatic(0, c), &p), p.Check()
}

// control gives one of three sides rates (DCQCN), and one of three another
// interval of notifications. It draws from numbers of its own, so that seeds
// stay what they were.
func (w *world) control(side int, c *qp.Config) {
	r := rand.New(rand.NewPCG(w.seed, uint64(side)+0xdcdc))
	switch r.IntN(3) {
	case 0:
		c.NotifyInterval = -1
	case 1:
		c.NotifyInterval = time.Duration(1 + r.IntN(100_000))
	}
	c.NotifyHold = c.NotifyInterval%2 == 1
	if r.IntN(3) > 0 {
		return
	}
	p := cc.PaperProfile(1e9 + r.Uint64N(40e9))
	if r.IntN(2) == 0 {
		p = cc.AdapterProfile(p.Line)
	}
	p.Min = p.Line / (1 + r.Uint64N(50))
	p.Burst = 1 << r.IntN(17)
	c.Congestion = cc.NewDCQCN(cc.NewWindow(c.Window), &p)
}
