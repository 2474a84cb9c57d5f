package qptest

import (
	"fmt"

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
