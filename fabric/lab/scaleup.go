package lab

import (
	"errors"
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/qp/cc"
)

// ScaleUp is a network inside of each machine of rails, as NVLink is: a switch
// that its GPUs have cables to, beside those of their adapters. See
// topology.Rails.
type ScaleUp struct {
	ScaleUpRate  Rate `toml:"scale_up_rate"`  // of a GPU's cable there; 0: there is none
	ScaleUpDelay Time `toml:"scale_up_delay"` // 0: Network.Delay
}

const mostRate = 8000 * Gbps // of a cable

// others says which setting would do nothing.
func (u *ScaleUp) others() error {
	if u.ScaleUpRate == 0 && u.ScaleUpDelay != 0 {
		return errors.New("network.scale_up_delay is for scale_up_rate")
	}
	return nil
}

// check says what is wrong with numbers. All cables of a GPU together are one
// of its bond.
func (n *Network) checkScaleUp() error {
	switch rate := n.ScaleUpRate; {
	case rate == 0:
		return nil
	case rate < Mbps || rate > mostRate-n.hostRate():
		return fmt.Errorf("network.scale_up_rate is %v: it is 1Mb/s to %v, which is 8Tb/s less rate", rate, mostRate-n.hostRate())
	case n.ScaleUpDelay < 0 || n.ScaleUpDelay > Time(event.Second):
		return fmt.Errorf("network.scale_up_delay is %v: it is at most 1s", exact(n.ScaleUpDelay))
	}
	return nil
}

// scaleUp returns the cable of a GPU to the switch of its machine.
func (n *Network) scaleUp(host topology.Cable) topology.Cable {
	if n.ScaleUpRate == 0 {
		return topology.Cable{}
	}
	return topology.Cable{Rate: int64(n.ScaleUpRate), Delay: int64(orDefault(n.ScaleUpDelay, Time(host.Delay)))}
}

// hostRate returns the rate of the cables of adapters, where the scenario says
// it.
func (n *Network) hostRate() Rate { return orDefault(n.Rate, 100*Gbps) }

// lineRate returns the rate of the hosts' cables: with ScaleUp of those of
// their adapters, not of what a GPU has in all.
func (n *Network) lineRate(g *topology.Graph) int64 {
	if n.ScaleUpRate == 0 || n.Graph != nil {
		return g.HostRate()
	}
	return int64(n.hostRate())
}

// makers is maker where paths inside of machines begin with cables of another
// rate: congestion control that knows the rate of its port is told of that.
func (of *connecting) makers(c *Adapter, choice cc.Choice) (func(path) cc.Controller, error) {
	outside, err := of.maker(c, choice)
	rate := of.s.Network.ScaleUpRate
	if err != nil || outside == nil || rate == 0 || choice.Line != of.rate {
		return outside, err
	}
	choice.Line = uint64(rate)
	inside, err := of.maker(c, choice)
	return func(there path) cc.Controller {
		if len(there) > 1 && there[1].rate == int64(rate) { // after the bond
			return inside(there)
		}
		return outside(there)
	}, err
}
