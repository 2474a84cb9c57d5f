package qptest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// wireRules say what happens to the packets that cross the wire during one
// command. A packet is named by its sender and its number in this command: a1
// is the first packet that a sends. a* is every packet of a, * every packet.
type wireRules struct {
	drop, dup, swap, hold map[string]bool
	mark                  map[string]bool // Congestion Experienced
	from                  string          // only this side transmits
	limit                 int             // most packets that are sent; 0 is no limit
	quiet                 bool            // print a count, not the packets
}

func parseWireRules(a *args) (wireRules, error) {
	w := wireRules{from: a.text("from", ""), quiet: a.has("quiet")}
	set := func(key string) map[string]bool {
		m := map[string]bool{}
		for _, n := range strings.Split(a.text(key, ""), ",") {
			m[n] = true
		}
		delete(m, "")
		return m
	}
	w.drop, w.dup, w.swap, w.hold, w.mark = set("drop"), set("dup"), set("swap"), set("hold"), set("mark")
	n, err := a.num("n", 0)
	w.limit = int(n)
	if err != nil {
		return w, err
	}
	return w, a.done()
}

func (w *wireRules) applies(m map[string]bool, a *actor, n int) bool {
	return m["*"] || m[a.name+"*"] || m[a.name+strconv.Itoa(n)]
}

// carried is a packet on the wire, as it arrives.
type carried struct {
	wire   []byte
	marked bool // with Congestion Experienced
}

// exchange carries packets both ways until both sides are silent.
func (s *scene) exchange(w *wireRules, prefix string) {
	for {
		var inbox [2][]carried
		moved := false
		for i, a := range s.actors {
			if w.from != "" && w.from != a.name {
				continue
			}
			inbox[1-i] = s.transmit(a, w, prefix)
			moved = moved || len(inbox[1-i]) > 0
		}
		for i, a := range s.actors {
			for _, c := range inbox[i] {
				if why := s.hand(a, c); why != "" && !w.quiet {
					s.printf("%s  %s", prefix, why)
				}
			}
		}
		if !moved {
			return
		}
	}
}

// finish prints the count of a quiet command and refuses rules that named a
// packet which was never sent.
func (s *scene) finish(w *wireRules) error {
	if w.quiet {
		s.printf("a sent %d packets, b sent %d", s.actors[0].polled, s.actors[1].polled)
	}
	for _, m := range []map[string]bool{w.drop, w.dup, w.swap, w.hold, w.mark} {
		for name := range m {
			if n, err := strconv.Atoi(name[1:]); len(name) > 1 && err == nil && n > s.actors[name[0]-'a'].polled {
				return fmt.Errorf("%s was never sent", name)
			}
		}
	}
	return nil
}

// transmit polls one side until it is silent and applies the rules.
func (s *scene) transmit(a *actor, w *wireRules, prefix string) []carried {
	var arriving []carried
	var late carried
	for w.limit == 0 || s.actors[0].polled+s.actors[1].polled < w.limit {
		wire := s.poll(a)
		if wire == nil {
			break
		}
		c := carried{wire, w.applies(w.mark, a, a.polled)}
		fate := ""
		if c.marked {
			fate = "  (marked)"
		}
		switch {
		case w.applies(w.drop, a, a.polled):
			fate = "  (lost)"
		case w.applies(w.hold, a, a.polled):
			fate = "  (held)"
			a.held = append(a.held, c)
		case w.applies(w.swap, a, a.polled):
			fate = "  (overtaken)"
			late = c
		case w.applies(w.dup, a, a.polled):
			fate = "  (twice)"
			arriving = append(arriving, c, c)
		default:
			arriving = append(arriving, c)
			if late.wire != nil {
				arriving, late = append(arriving, late), carried{}
			}
		}
		if !w.quiet {
			s.printf("%s%s%s", prefix, s.show(a, wire), fate)
		}
	}
	if late.wire != nil {
		arriving = append(arriving, late)
	}
	return arriving
}

// advanceTo moves virtual time, firing timers and carrying packets on the way.
func (s *scene) advanceTo(end clock.Time, w *wireRules) error {
	for fired := 0; ; fired++ {
		if fired > 10000 {
			return fmt.Errorf("timers fire without end")
		}
		next, due := clock.Time(0), (*actor)(nil)
		for _, a := range s.actors {
			if a.endpoint == nil {
				continue
			}
			if t, ok := a.Deadline(); ok && t <= end && (due == nil || t < next) {
				next, due = t, a
			}
		}
		if due == nil {
			s.now = end
			return nil
		}
		if next > s.now {
			s.now = next
		}
		due.HandleTimeout(s.now)
		if t, ok := due.Deadline(); ok && t <= s.now {
			return fmt.Errorf("the timer of %s is still due after HandleTimeout", due.name)
		}
		prefix := "@" + duration(s.now) + " "
		if !s.live() {
			s.drainLone(prefix)
		} else {
			s.exchange(w, prefix)
		}
	}
}
