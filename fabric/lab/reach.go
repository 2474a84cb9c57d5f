package lab

import "fmt"

// hostsApart reports whether there are hosts that cannot reach each other.
func (r *run) hostsApart() bool {
	for h := int32(1); h < r.g.Hosts(); h++ {
		if _, err := r.tables.Path(0, h, nil); err != nil {
			return true
		}
	}
	return false
}

// reach says what is wrong with hosts that are to send each other something,
// and have no way.
func (r *run) reach(hosts ...int) error {
	if !r.apart {
		return nil
	}
	for _, h := range hosts {
		if _, err := r.tables.Path(int32(hosts[0]), int32(h), nil); err != nil {
			next := "they must be joined by cables and switches"
			if r.s.Network.Topology == "rails" {
				next = fmt.Sprintf("without spines the rails are apart: set network.spines, or take hosts of one rail, as in hosts = \"0-%d/%d\"", int(r.g.Hosts())-r.s.Network.GPUs, r.s.Network.GPUs)
			}
			return fmt.Errorf("there is no way from host %d to host %d: %s", hosts[0], h, next)
		}
	}
	return nil
}
