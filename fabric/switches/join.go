package switches

import "github.com/gosoftroce/rocev2/fabric/network"

// Join returns a program that does what all of some do. Nil ones are left out;
// of none it is nil. Enqueue and Dequeue are called in the order of the
// programs: of Enqueue the first verdict counts that is not Default, and after
// a Discard the rest is not asked. All other hooks of all are called, but Route
// and Timer are for one of them: if several have them Join panics when the
// network is made, as there is one way for a packet, and one timer. Programs
// that call View.Hold or View.Pause share what these say, so one may.
func Join(programs ...network.Program) network.Program {
	kept := make([]network.Program, 0, len(programs))
	for _, p := range programs {
		if p != nil {
			kept = append(kept, p)
		}
	}
	switch len(kept) {
	case 0:
		return nil
	case 1:
		return kept[0]
	}
	return func(v *network.View) network.Hooks {
		var j joined
		for _, p := range kept {
			j.add(p(v))
		}
		return j.hooks()
	}
}

// joined are the hooks of several programs.
type joined struct {
	all   []network.Hooks
	route func(*network.Packet, int, []uint16) int
	timer func()
}

func (j *joined) add(h network.Hooks) {
	j.all = append(j.all, h)
	if h.Route != nil {
		if j.route != nil {
			panic("switches: Join of two programs that route")
		}
		j.route = h.Route
	}
	if h.Timer != nil {
		if j.timer != nil {
			panic("switches: Join of two programs that have a timer")
		}
		j.timer = h.Timer
	}
}

// hooks returns those of all together. One that none of them has stays nil.
func (j *joined) hooks() network.Hooks {
	h := network.Hooks{Route: j.route, Timer: j.timer}
	for _, one := range j.all {
		if one.Enqueue != nil {
			h.Enqueue = j.enqueues
		}
		if one.Dequeue != nil {
			h.Dequeue = j.dequeues
		}
		if one.Dropped != nil {
			h.Dropped = j.dropped
		}
		if one.Paused != nil {
			h.Paused = j.paused
		}
		if one.Frame != nil {
			h.Frame = j.frame
		}
		if one.Cable != nil {
			h.Cable = j.cable
		}
	}
	return h
}

func (j *joined) enqueues(p *network.Packet, at network.Place, why network.Drop) network.Verdict {
	for i := range j.all {
		if f := j.all[i].Enqueue; f != nil {
			if v := f(p, at, why); v != network.Default {
				return v
			}
		}
	}
	return network.Default
}

func (j *joined) dequeues(p *network.Packet, at network.Place) network.Verdict {
	for i := range j.all {
		if f := j.all[i].Dequeue; f != nil {
			if v := f(p, at); v != network.Default {
				return v
			}
		}
	}
	return network.Default
}

func (j *joined) dropped(p *network.Packet, at network.Place, why network.Drop) {
	for i := range j.all {
		if f := j.all[i].Dropped; f != nil {
			f(p, at, why)
		}
	}
}

func (j *joined) paused(port int, classes uint8) {
	for i := range j.all {
		if f := j.all[i].Paused; f != nil {
			f(port, classes)
		}
	}
}

func (j *joined) frame(port int, f network.Frame) {
	for i := range j.all {
		if hook := j.all[i].Frame; hook != nil {
			hook(port, f)
		}
	}
}

func (j *joined) cable(port int, up bool) {
	for i := range j.all {
		if f := j.all[i].Cable; f != nil {
			f(port, up)
		}
	}
}
