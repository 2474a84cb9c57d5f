package lab

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/fabric/traffic/tracefile"
	"github.com/gosoftroce/rocev2/ib"
)

// Files returns the files that the scenario's network and traffic are in, by
// the setting that their text belongs into: see Set. They stand beside the
// scenario, or below it.
func (s *Scenario) Files() (map[string]string, error) {
	files := map[string]string{}
	add := func(where, file, text, setting string) error {
		switch {
		case file == "" || text != "":
		case !filepath.IsLocal(file):
			return s.errorf("%s is %q: it is beside the scenario, or in a directory there", where, file)
		default:
			files[setting] = file
		}
		return nil
	}
	if err := add("network.file", s.Network.File, s.Network.Text, "network.text"); err != nil {
		return nil, err
	}
	for i := range s.Traffic {
		t := &s.Traffic[i]
		if err := add(fmt.Sprintf("traffic %d: file", i+1), t.File, t.List, fmt.Sprintf("traffic.%d.list", i)); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// units are those of scenarios.
var units = tracefile.Units{
	Time: func(text string) (int64, error) {
		var t Time
		err := t.UnmarshalText([]byte(text))
		return int64(t), err
	},
	Bytes: func(text string) (int64, error) {
		var n Bytes
		err := n.UnmarshalText([]byte(text))
		return int64(n), err
	},
}

// list has the flows of a list begin.
func (r *run) list(tn *tenant, t *Traffic, op int) error {
	if t.List == "" {
		return errors.New("list has the flows, or file says where they are")
	}
	l := lister{r: r, tenant: tn, op: op}
	flows, err := l.read(t)
	if err != nil {
		return l.named(t, err)
	}
	if err := r.provide(len(flows)); err != nil {
		return err
	}
	for i, f := range flows {
		if l.file.Flows[i].After < 0 {
			r.later(f)
		} else {
			r.open++ // a trigger starts it
		}
	}
	return nil
}

// lister makes flows of a list.
type lister struct {
	r      *run
	tenant *tenant
	op     int // where the list does not say
	file   *tracefile.File
	errs   []error
}

// named has the name of the list in front of an error of it.
func (l *lister) named(t *Traffic, err error) error {
	return fmt.Errorf("%s: %w", orDefault(t.File, "list"), err)
}

// read returns the flows of a list.
func (l *lister) read(t *Traffic) (flows []*Flow, err error) {
	format, err := oneOf("format", t.Format, formats, 0)
	if err != nil {
		return nil, err
	}
	limits := tracefile.Limits{Flows: mostFlows, Bytes: mostFlow, Start: int64(mostTime)}
	switch format {
	case 0:
		l.file, err = tracefile.CSV(t.List, units, limits)
	case 1:
		l.file, err = tracefile.NS3(t.List, limits)
	default:
		l.file, err = tracefile.HTSim(t.List, limits)
	}
	if err != nil {
		return nil, err
	}
	if len(l.file.Triggers) > 0 && l.r.s.Adapter.Shared {
		return nil, errors.New("its triggers need flows that do not share connections: take adapter.shared out")
	}
	start := t.Start
	if t.Rebase {
		start -= l.first()
	}
	for i := range l.file.Flows {
		flows = append(flows, l.flow(&l.file.Flows[i], start))
	}
	if err := errors.Join(l.errs...); err != nil {
		return nil, err
	}
	l.triggers(flows)
	return flows, nil
}

// first returns when the first flow starts that no trigger starts.
func (l *lister) first() Time {
	first := mostTime
	for i := range l.file.Flows {
		if f := &l.file.Flows[i]; f.After < 0 {
			first = min(first, Time(f.Start))
		}
	}
	if first == mostTime {
		return 0
	}
	return first
}

// flow makes a flow of a line, and notes what is wrong with it.
func (l *lister) flow(k *tracefile.Flow, start Time) *Flow {
	const most = 10
	wrong := func(err error) {
		if err != nil && len(l.errs) < most {
			l.errs = append(l.errs, fmt.Errorf("line %d: %w", k.Line, err))
		}
	}
	host := func(column string, n int64) int {
		h, err := hostOf(l.r.g, n)
		if err != nil {
			wrong(fmt.Errorf("%s: %w", column, err))
		}
		return h
	}
	f := l.tenant.flow(host("from", k.Src), host("to", k.Dst), k.Bytes, start+Time(k.Start), l.op)
	if k.Op != "" && l.tenant.tcp != nil {
		wrong(errOpOfTCP)
	} else if k.Op != "" {
		var err error
		if f.op, err = oneOf("op: it", k.Op, operations, 0); err != nil {
			wrong(err)
		}
	}
	until := l.r.s.Until
	switch {
	case k.Class != "":
		dscp, err := l.r.s.Network.dscpOf(k.Class)
		wrong(err)
		f.inClass(l.r, uint8(dscp))
	case k.Group >= 0:
		dscp, err := dscpOfGroup(&l.r.profile, k.Group)
		wrong(err)
		f.inClass(l.r, dscp)
	}
	switch {
	case k.SrcPort != 0 && k.SrcPort < ib.MinSrcPort:
		wrong(fmt.Errorf("src_port: %d: it is %d to 65535", k.SrcPort, ib.MinSrcPort))
	case int(k.SrcPort)+l.tenant.pairs > 1<<16:
		wrong(fmt.Errorf("src_port: %d: each of %d queue pairs has the next, up to 65535", k.SrcPort, l.tenant.pairs))
	case until > 0 && k.After < 0 && f.Start >= until:
		wrong(fmt.Errorf("it starts at %v, and the run ends at %v", f.Start, until))
	case k.Bytes == 0 && until == 0:
		wrong(errors.New("without bytes it goes on until the end: set until"))
	}
	wrong(l.r.ways.between(f.Src, f.Dst))
	f.port = k.SrcPort
	return f
}

// hostOf returns the host that a list means by a number: in a network of a file
// the one that has this number there.
func hostOf(g *topology.Graph, n int64) (int, error) {
	if g.NameOf(0) != "" {
		node, ok := g.Named(strconv.FormatInt(n, 10))
		if !ok || !g.IsHost(node) {
			return 0, fmt.Errorf("\"%d\" is no host in the file of the network", n)
		}
		return int(node), nil
	}
	if n >= int64(g.Hosts()) {
		return 0, fmt.Errorf("\"%d\" is no host: there are 0 to %d", n, g.Hosts()-1)
	}
	return int(n), nil
}

// dscpOfGroup returns a DSCP by which packets get into a class of switches:
// that of a priority group of ns-3. Of the class for RoCE it is that of RoCE.
func dscpOfGroup(p *topology.Profile, group int) (uint8, error) {
	if int(classOf(p, int(p.RoCE))) == group {
		return p.RoCE, nil
	}
	var classes []string
	for c := range 8 {
		for d := range 64 {
			if int(classOf(p, d)) == c {
				if c == group {
					return uint8(d), nil
				}
				classes = append(classes, fmt.Sprint(c))
				break
			}
		}
	}
	return 0, fmt.Errorf("priority group %d: no DSCP leads to this class of switches: there are %s, or one more [[network.class]]", group, strings.Join(classes, ", "))
}

// triggers has flows start when others have come to their end.
func (l *lister) triggers(flows []*Flow) {
	fired := make([]func(), len(l.file.Triggers))
	for i := range l.file.Triggers {
		fired[i] = l.trigger(&l.file.Triggers[i], flows)
	}
	for i := range l.file.Flows {
		if at := l.file.Flows[i].SendDone; at >= 0 {
			flows[i].ended = fired[at]
		}
		if at := l.file.Flows[i].RecvDone; at >= 0 {
			flows[i].arrived = fired[at]
		}
	}
}

// trigger returns what an activation of a trigger does.
func (l *lister) trigger(t *tracefile.Trigger, flows []*Flow) func() {
	left, next := t.Count, 0
	start := func(i int) {
		f := flows[t.Flows[i]]
		f.Start = Time(l.r.net.Now())
		l.r.start(f)
	}
	return func() {
		if t.Kind == tracefile.Barrier {
			if left--; left != 0 {
				return
			}
		}
		for next < len(t.Flows) {
			next++
			start(next - 1)
			if t.Kind == tracefile.MultiShot {
				return
			}
		}
	}
}
