package lab

import (
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/topology"
)

// ways tells which hosts can reach each other.
type ways struct {
	tables *topology.Tables
	apart  bool // some cannot
	rails  int  // of a network of rails; else 0
}

func newWays(n *Network, t *topology.Tables) ways {
	w := ways{tables: t}
	if n.Topology == "rails" {
		w.rails = n.GPUs
	}
	for h := int32(1); h < t.Graph().Hosts() && !w.apart; h++ {
		_, err := t.Path(0, h, nil)
		w.apart = err != nil
	}
	return w
}

// between says what is wrong with hosts that are to send each other something,
// and have no way.
func (w *ways) between(hosts ...int) error {
	if !w.apart {
		return nil
	}
	for _, h := range hosts {
		if _, err := w.tables.Path(int32(hosts[0]), int32(h), nil); err != nil {
			next := "they must be joined by cables and switches"
			if w.rails > 0 {
				next = fmt.Sprintf("without spines the rails are apart: set network.spines, or take hosts of one rail, as in hosts = \"0-%d/%d\"", int(w.tables.Graph().Hosts())-w.rails, w.rails)
			}
			return fmt.Errorf("there is no way from host %d to host %d: %s", hosts[0], h, next)
		}
	}
	return nil
}
