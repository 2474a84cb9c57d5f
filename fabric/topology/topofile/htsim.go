package topofile

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/fabric/topology"
)

// tier is what a file says of one. It is of the switches, and of the cables
// below them.
type tier struct {
	line int // where it begins
	set  map[string]int64
}

// htsim is a file: its header, and up to three tiers.
type htsim struct {
	header tier
	tiers  [3]*tier
}

// Settings, and the least that each may be. Latencies are in nanoseconds.
var (
	headerSettings = map[string]int{"nodes": 1, "tiers": 2, "podsize": 1}
	tierSettings   = map[string]int{
		"downlink_speed_gbps": 1, "radix_up": 1, "radix_down": 1, "queue_up": 1, "queue_down": 1,
		"oversubscribed": 1, "bundle": 1, "switch_latency_ns": 0, "downlink_latency_ns": 0,
	}
)

const mostNumber = 1 << 30 // of a file; a latency is up to a second in ns

// readHTSim reads a .topo.
func readHTSim(text string) (*topology.Graph, error) {
	f := &htsim{header: tier{1, map[string]int64{}}}
	at := &f.header
	number := 0
	var wrong mistakes
	for line := range strings.Lines(text) {
		number++
		words := strings.Fields(line)
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		next, err := f.read(at, number, words)
		if err == nil {
			at = next
		} else if wrong.add(fmt.Errorf("line %d: %w", number, err)) {
			break
		}
	}
	if len(wrong) > 0 {
		return nil, wrong.all()
	}
	t, err := f.tree()
	if err != nil {
		return nil, err
	}
	return t.graph()
}

// read takes one line, in a tier or the header, and returns where the next one
// stands.
func (f *htsim) read(at *tier, line int, words []string) (*tier, error) {
	key := strings.ToLower(words[0])
	if len(words) != 2 {
		return nil, fmt.Errorf("a line has a setting and a number, as in Nodes 16")
	}
	n, err := strconv.Atoi(words[1])
	if err != nil || n < 0 || n > mostNumber {
		return nil, fmt.Errorf("%.40s is %.40q: it is a number up to %d", words[0], words[1], mostNumber)
	}
	if key == "tier" {
		if n >= len(f.tiers) {
			return nil, fmt.Errorf("tier %d: there are 0 to 2", n)
		}
		if f.tiers[n] != nil {
			return nil, fmt.Errorf("tier %d is there twice", n)
		}
		f.tiers[n] = &tier{line, map[string]int64{}}
		return f.tiers[n], nil
	}
	settings, where, names := tierSettings, "a tier", "Downlink_speed_Gbps, Radix_Down, Radix_Up, Downlink_Latency_ns, Switch_Latency_ns, Oversubscribed, Bundle, Queue_Up, Queue_Down"
	if at == &f.header {
		settings, where, names = headerSettings, "the header", "Nodes, Tiers, Podsize"
	}
	least, ok := settings[key]
	if !ok {
		return nil, fmt.Errorf("there is no setting %.40q: %s has %s", words[0], where, names)
	}
	if n < least {
		return nil, fmt.Errorf("%s is %d: it is at least %d", words[0], n, least)
	}
	if _, twice := at.set[key]; twice {
		return nil, fmt.Errorf("%s is there twice", words[0])
	}
	at.set[key] = int64(n)
	return at, nil
}

// need returns a setting that has to be there.
func (t *tier) need(key, name, of string) (int64, error) {
	n, ok := t.set[key]
	if !ok {
		return 0, fmt.Errorf("line %d: %s does not say %s", t.line, of, name)
	}
	return n, nil
}

// or returns a setting, or a default.
func (t *tier) or(key string, def int64) int64 {
	if n, ok := t.set[key]; ok {
		return n
	}
	return def
}

// tree reads the whole of the settings.
func (f *htsim) tree() (t tree, err error) {
	if t.hosts, err = f.header.need("nodes", "Nodes", "the header"); err != nil {
		return t, err
	}
	if t.pod, err = f.header.need("podsize", "Podsize", "the header"); err != nil {
		return t, err
	}
	count, err := f.header.need("tiers", "Tiers", "the header")
	if err != nil {
		return t, err
	}
	if count > int64(len(f.tiers)) {
		return t, fmt.Errorf("line %d: Tiers is %d: it is 2 or 3", f.header.line, count)
	}
	for i := range int(count) {
		if f.tiers[i] == nil {
			return t, fmt.Errorf("line %d: there are %d tiers, and nothing is said of Tier %d", f.header.line, count, i)
		}
	}
	for i := range int(count) {
		l, err := f.tiers[i].level(i, i == int(count)-1)
		if err != nil {
			return t, err
		}
		t.levels = append(t.levels, l)
	}
	for i := int(count); i < len(f.tiers); i++ {
		if f.tiers[i] != nil {
			return t, fmt.Errorf("line %d: Tier %d, and the header says that there are %d tiers", f.tiers[i].line, i, count)
		}
	}
	return t, t.check()
}

// level reads a tier; top says that none is above it.
func (t *tier) level(number int, top bool) (l level, err error) {
	of := fmt.Sprintf("tier %d", number)
	l.line = t.line
	speed, err := t.need("downlink_speed_gbps", "Downlink_speed_Gbps", of)
	if err != nil {
		return l, err
	}
	if l.down, err = t.need("radix_down", "Radix_Down", of); err != nil {
		return l, err
	}
	latency, err := t.need("downlink_latency_ns", "Downlink_Latency_ns", of)
	if err != nil {
		return l, err
	}
	if !top {
		if l.up, err = t.need("radix_up", "Radix_Up", of); err != nil {
			return l, err
		}
	} else if _, ok := t.set["radix_up"]; ok {
		return l, fmt.Errorf("line %d: tier %d has a Radix_Up, and no tier is above it", t.line, number)
	}
	const nanosecond, gigabit = 1000, 1_000_000_000
	l.rate, l.delay = speed*gigabit, latency*nanosecond
	l.latency = t.or("switch_latency_ns", 0) * nanosecond
	l.bundle, l.over = t.or("bundle", 1), t.or("oversubscribed", 0)
	if ports := max(l.down, l.up, l.bundle, l.over); ports > topology.MaxPorts {
		return l, fmt.Errorf("line %d: tier %d: a switch with %d ports: it has at most %d", t.line, number, ports, topology.MaxPorts)
	}
	if err := checkRate(l.rate); err != nil {
		return l, fmt.Errorf("line %d: tier %d: %w", t.line, number, err)
	}
	if err := checkDelay(l.delay + l.latency); err != nil {
		return l, fmt.Errorf("line %d: tier %d: %w", t.line, number, err)
	}
	return l, nil
}
