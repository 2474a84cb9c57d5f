package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gosoftroce/rocev2/verbs"
)

// report is the counters of a device. It goes from the second process of the
// demo to the first one.
type report struct {
	Device   string    `json:"device"`
	Sections []section `json:"sections"`
}

// section is the counters of one source.
type section struct {
	Name     string   `json:"name"`
	Counters counters `json:"counters"`
}

// counters are names with values, in order.
type counters []counter

type counter struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}

func (c *counters) add(name string, value uint64) { *c = append(*c, counter{name, value}) }

func (c counters) get(name string) uint64 {
	for _, k := range c {
		if k.Name == name {
			return k.Value
		}
	}
	return 0
}

// Names of sections.
const (
	sectionLink    = "link"
	sectionAdapter = "adapter"
	sectionDrops   = "drops"
	sectionQPs     = "queue_pairs"
	sectionGuard   = "guard"   // where all packets are sealed
	sectionSealing = "sealing" // where queue pairs can seal theirs
)

// reportOf reads the counters of a device.
func reportOf(dev *verbs.Device) report {
	st, qps := dev.Stats(), dev.QPStats()
	r := report{Device: dev.Addr().String()}
	var link, adapter, drops, pairs counters
	st.Link.Each(link.add)
	adapter.add("send_errors", st.SendErrors)
	adapter.add("loop_packets", st.LoopPackets)
	adapter.add("loop_bytes", st.LoopBytes)
	adapter.add("events_dropped", st.EventsDropped)
	qps.Each(func(name string, value uint64) {
		// The device has the reasons of all its queue pairs.
		if reason, ok := strings.CutPrefix(name, "drop_"); ok {
			drops.add(reason, st.Drops[reason])
			delete(st.Drops, reason)
		} else {
			pairs.add(name, value)
		}
	})
	for _, name := range slices.Sorted(maps.Keys(st.Drops)) {
		drops.add(name, st.Drops[name])
	}
	r.Sections = []section{{sectionLink, link}, {sectionAdapter, adapter}, {sectionDrops, drops}, {sectionQPs, pairs}}
	if c, secured := dev.GuardCounters(); secured {
		var guard counters
		c.Each(guard.add)
		r.Sections = append(r.Sections, section{sectionGuard, guard})
	}
	if dev.SealedMTU(dev.Addr()) > 0 {
		var sealing counters
		c := dev.SealCounters()
		c.Each(sealing.add)
		r.Sections = append(r.Sections, section{sectionSealing, sealing})
	}
	return r
}

func (r *report) section(name string) counters {
	for _, s := range r.Sections {
		if s.Name == name {
			return s.Counters
		}
	}
	return nil
}

// report returns the counters of the command's device.
func (i *inspector) report() report {
	r := reportOf(i.device)
	if i.faults != nil {
		tx, rx := i.faults.Counts()
		var out, in counters
		tx.Each(out.add)
		rx.Each(in.add)
		r.Sections = append(r.Sections, section{"faults_out", out}, section{"faults_in", in})
	}
	return r
}

// print prints the counters as the flags ask for it.
func (i *inspector) print() error {
	all := append([]report{i.report()}, i.extra...)
	switch i.flags.stats {
	case statsText:
		var b []byte
		for _, r := range all {
			b = r.text(b)
		}
		_, err := i.err.Write(b)
		return err
	case statsJSON:
		for _, r := range all {
			if err := json.NewEncoder(i.out).Encode(ordered{{"stats", i.object(r)}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// object is a report as it is printed in JSON.
func (i *inspector) object(r report) (o ordered) {
	o.add("device", r.Device)
	for _, s := range r.Sections {
		var members ordered
		for _, c := range s.Counters {
			members.add(c.Name, c.Value)
		}
		o.add(s.Name, members)
	}
	if i.faults != nil && r.Device == i.device.Addr().String() {
		o.add("fault_rules", i.ruleTexts())
		o.add("fault_seed", i.rules.Seed)
	}
	return o
}

// text appends the counters that are not zero.
func (r *report) text(b []byte) []byte {
	b = fmt.Appendf(b, "\nCounters of the device %s that are not zero:\n\n", r.Device)
	names, values := 0, 0
	for _, s := range r.Sections {
		for _, c := range s.Counters {
			if c.Value > 0 {
				names, values = max(names, len(c.Name)), max(values, len(fmt.Sprint(c.Value)))
			}
		}
	}
	for _, s := range r.Sections {
		title := strings.ReplaceAll(s.Name, "_", " ")
		for _, c := range s.Counters {
			if c.Value > 0 {
				b = fmt.Appendf(b, "  %-12s %-*s %*d\n", title, names, c.Name, values, c.Value)
				title = ""
			}
		}
	}
	return b
}
