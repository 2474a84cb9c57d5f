package lab

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/topology"
)

// Failure is something that is wrong from At on, and over at Until. Kind is one
// of:
//
//   - down: cables are down
//   - one-way: all that the first end of cables sends is lost. No end sees
//     it, so the tables do not follow
//   - rate, delay, loss: cables have a lower Rate, a Delay more, or lose the
//     share Loss more
//   - switch: a switch is off, and so are all of its cables
//   - host: an adapter has stopped. It takes and sends nothing, and its cable
//     is up
//   - pause-storm: a host pauses the class of the data, without end
//
// Cables are one by its number, or all that are Between two nodes. With Every
// it comes again each Every, for the time For.
type Failure struct {
	Kind    string   // "": down
	Cable   int      // in the order of the topology's links; hosts' cables come first
	Between []string // instead of Cable: two nodes, as "h0" and "s3"
	Node    string   // of a switch, a host and a pause-storm
	Rate    Rate
	Delay   Time
	Loss    float64
	At      Time
	Until   Time // 0: never
	Every   Time
	For     Time
}

var failureKinds = []string{"down", "one-way", "rate", "delay", "loss", "switch", "host", "pause-storm"}

// others says which setting is one of another kind of failure.
func (f *Failure) others(number int) error {
	return unused(fmt.Sprintf("failure %d", number), orDefault(f.Kind, "down"), failureKinds, []setting{
		{"cable or between", f.Cable != 0 || f.Between != nil, "down one-way rate delay loss"},
		{"node", f.Node != "", "switch host pause-storm"},
		{"rate", f.Rate != 0, "rate"},
		{"delay", f.Delay != 0, "delay"},
		{"loss", f.Loss != 0, "loss"},
	})
}

// trouble is a time in which something is wrong with a cable, or with a host.
type trouble struct {
	on       int32 // cable or host
	from, to Time  // to may be endless
	down     bool  // and of a host: it pauses
	network.Condition
}

const (
	endless      = Time(math.MaxInt64)
	mostTroubles = 1 << 17
	mostMistakes = 10
)

// failures has cables, switches and hosts fail.
func (r *run) failures() (err error) {
	if r.told, err = r.s.tell(); err != nil {
		return err
	}
	var wrong []error
	var cables, storms []trouble
	for i := range r.s.Failures {
		f := &r.s.Failures[i]
		list, err := r.troubles(f)
		if err == nil && len(list)+len(cables)+len(storms) > mostTroubles {
			err = fmt.Errorf("with those before it, cables fail more than %d times: set until, or a longer every", mostTroubles)
		}
		switch {
		case err != nil && len(wrong) < mostMistakes:
			wrong = append(wrong, fmt.Errorf("failure %d: %w", i+1, err))
		case f.Kind == "pause-storm":
			storms = append(storms, list...)
		default:
			cables = append(cables, list...)
		}
	}
	if len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	r.happen(cables, func(cable int32, before, now trouble) {
		if now.Condition != before.Condition {
			r.stop(r.net.SetCondition(int(cable), now.Condition))
		}
		r.net.SetCable(int(cable), !now.down)
	})
	for _, t := range r.tenants {
		t.stormed(r, t.conn.TrafficClass>>2)
	}
	r.happen(storms, func(host int32, _, now trouble) {
		classes := r.data
		if !now.down {
			classes = 0
		}
		for port := range r.net.Ports(int(host)) {
			r.net.Pause(int(host), port, classes)
		}
	})
	return nil
}

// troubles returns what a failure does to cables, or to hosts.
func (r *run) troubles(f *Failure) (list []trouble, err error) {
	if err := f.check(r); err != nil {
		return nil, err
	}
	one := trouble{down: true}
	var on []int32
	if slices.Contains([]string{"switch", "host", "pause-storm"}, f.Kind) {
		on, err = f.onNode(r.g)
	} else {
		on, err = f.onCables(r.g)
	}
	if err != nil {
		return nil, err
	}
	switch f.Kind {
	case "rate", "delay", "loss":
		loss, err := share("loss", f.Loss, 1e9)
		if err != nil {
			return nil, err
		}
		one = trouble{Condition: network.Condition{Rate: int64(f.Rate), Delay: event.Time(f.Delay), Loss: uint32(loss)}}
	case "host":
		one = trouble{Condition: network.Condition{Void: [2]bool{true, true}}}
	case "one-way":
		one = trouble{}
	}
	times, err := f.times(orDefault(r.s.Until, orDefault(r.s.Limit, usualLimit)), mostTroubles/max(len(on), 1))
	if err != nil {
		return nil, err
	}
	for _, on := range on {
		one.on = on
		switch f.Kind {
		case "one-way":
			one.Void = f.direction(r.g, on)
		case "rate", "delay":
			if err := f.fits(on, r.g.Link(on).Cable); err != nil {
				return nil, err
			}
		}
		for _, t := range times {
			one.from, one.to = t[0], t[1]
			list = append(list, one)
		}
	}
	return list, nil
}

// fits says what is wrong with a rate or a delay at a cable.
func (f *Failure) fits(number int32, c topology.Cable) error {
	switch {
	case int64(f.Rate) > c.Rate:
		return fmt.Errorf("rate is %v, and cable %d has %v: a failure makes no cable faster", f.Rate, number, Rate(c.Rate))
	case int64(f.Delay) > topology.MaxDelay-c.Delay:
		return fmt.Errorf("delay is %v, and cable %d has %v: together they are at most 1s", f.Delay, number, Time(c.Delay))
	}
	return nil
}

// check says what is wrong with the settings of a failure.
func (f *Failure) check(r *run) error {
	if _, err := oneOf("kind", f.Kind, failureKinds, 0); err != nil {
		return err
	}
	switch {
	case !inRange(f.At, f.Until):
		return fmt.Errorf("at or until is negative, or above %v", mostTime)
	case !inRange(f.Every, f.For, f.Delay):
		return fmt.Errorf("every, for or delay is negative, or above %v", mostTime)
	case f.Until != 0 && f.Until <= f.At:
		return fmt.Errorf("it is over at %v, before it fails at %v", f.Until, f.At)
	case r.s.Until > 0 && f.At >= r.s.Until:
		return fmt.Errorf("it fails at %v, and the run ends at %v", f.At, r.s.Until)
	case (f.Every != 0) != (f.For != 0):
		return errors.New("every says how often it comes, and for how long each time: both or none")
	case f.For >= f.Every && f.Every != 0:
		return fmt.Errorf("for is %v, and every %v: it is over before it comes again", f.For, f.Every)
	case f.Kind == "rate" && f.Rate < 1e6:
		return fmt.Errorf("rate is %v: it is at least 1Mb/s, and at most that of the cable", exact(f.Rate))
	case f.Kind == "delay" && f.Delay == 0:
		return errors.New("delay says how much longer the way is")
	case f.Kind == "loss" && f.Loss == 0:
		return errors.New("loss is the share of packets that are lost, above 0 and up to 1")
	case f.Kind == "pause-storm" && r.s.Network.Lossy:
		return errors.New("there are no pauses with network.lossy")
	}
	return nil
}

// times returns from when to when a failure lasts, each time that it comes
// until the end of the run.
func (f *Failure) times(end Time, most int) (list [][2]Time, err error) {
	if f.Every == 0 {
		return [][2]Time{{f.At, orDefault(f.Until, endless)}}, nil
	}
	until := min(orDefault(f.Until, end), end)
	if until > f.At && int64((until-f.At)/f.Every) >= int64(most) {
		return nil, fmt.Errorf("it comes each %v from %v to %v: that is too often", f.Every, f.At, until)
	}
	for at := f.At; at < until; at += f.Every {
		list = append(list, [2]Time{at, min(at+f.For, orDefault(f.Until, endless))})
	}
	return list, nil
}

// onCables returns the cables that a failure is about.
func (f *Failure) onCables(g *topology.Graph) (cables []int32, err error) {
	if f.Between == nil {
		if f.Cable < 0 || f.Cable >= len(g.Links()) {
			return nil, fmt.Errorf("there is no cable %d: there are 0 to %d", f.Cable, len(g.Links())-1)
		}
		return []int32{int32(f.Cable)}, nil
	}
	if f.Cable != 0 {
		return nil, errors.New("cable and between say both which one it is: take one of them out")
	}
	if len(f.Between) != 2 {
		return nil, fmt.Errorf("between has %d nodes: it is the two ends of cables, as in [\"h0\", \"s3\"]", len(f.Between))
	}
	var ends [2]int32
	for i, text := range f.Between {
		if ends[i], err = endOf(g, text); err != nil {
			return nil, err
		}
	}
	for _, p := range g.Ports(ends[0]) {
		if p.Peer == ends[1] {
			cables = append(cables, p.Link)
		}
	}
	if len(cables) == 0 {
		return nil, fmt.Errorf("between is %q and %q: no cable joins them", f.Between[0], f.Between[1])
	}
	return cables, nil
}

// endOf returns the node at which the cables of a node end: of a host with
// several its bond.
func endOf(g *topology.Graph, text string) (int32, error) {
	node, err := nodeOf(g, "between", text)
	if err == nil && g.IsHost(node) {
		if bond, ok := g.Bond(node); ok {
			return bond, nil
		}
	}
	return node, err
}

// direction returns which end of a cable is not heard: the first of Between, or
// else the first of the link.
func (f *Failure) direction(g *topology.Graph, cable int32) (void [2]bool) {
	side := 0
	if f.Between != nil {
		if first, err := endOf(g, f.Between[0]); err == nil && first == g.Link(cable).B {
			side = 1
		}
	}
	void[side] = true
	return void
}

// onNode returns the cables of the node of a failure, or of a storm the node.
func (f *Failure) onNode(g *topology.Graph) (on []int32, err error) {
	if f.Node == "" {
		return nil, errors.New("node says which one, as in node = \"s3\"")
	}
	node, err := nodeOf(g, "node", f.Node)
	if err != nil {
		return nil, err
	}
	if isSwitch := f.Kind == "switch"; isSwitch == g.IsHost(node) {
		return nil, fmt.Errorf("node is %q: it is a %s, as %s", f.Node, map[bool]string{true: "switch", false: "host"}[isSwitch], map[bool]string{true: "s3", false: "h0"}[isSwitch])
	}
	if f.Kind == "pause-storm" {
		return []int32{node}, nil
	}
	for _, p := range g.Ports(node) {
		on = append(on, p.Link)
	}
	return on, nil
}

// nodeOf returns the node that a text names: "h" and "s" with the number of a
// host or switch, and "n" with what the file of a network calls it.
func nodeOf(g *topology.Graph, setting, text string) (int32, error) {
	kind, number := byte(0), ""
	if text != "" {
		kind, number = text[0], text[1:]
	}
	first, count, what := int32(0), g.Hosts(), "hosts"
	switch kind {
	case 'n':
		if node, ok := g.Named(number); ok {
			return node, nil
		}
		return 0, fmt.Errorf("%s is %q: no file of the network has a node %q", setting, text, number)
	case 's':
		first, count, what = g.Hosts(), g.Switches(), "switches"
	case 'h':
	default:
		return 0, fmt.Errorf("%s is %q: it is a host, as h0, a switch, as s0, or a node as its file has it, as n17", setting, text)
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 0 || int32(n) >= count {
		return 0, fmt.Errorf("%s is %q: there are %d %s, from 0 on", setting, text, count, what)
	}
	return first + int32(n), nil
}

// happen has changes follow from troubles. Those of one cable that overlap, or
// follow each other at once, are added up.
func (r *run) happen(list []trouble, change func(on int32, before, now trouble)) {
	slices.SortStableFunc(list, func(a, b trouble) int {
		return cmp.Or(cmp.Compare(a.on, b.on), cmp.Compare(a.from, b.from))
	})
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].on == list[0].on {
			n++
		}
		r.happenOn(list[0].on, list[:n], change)
		list = list[n:]
	}
}

// happenOn is happen of one cable, or host.
func (r *run) happenOn(on int32, list []trouble, change func(on int32, before, now trouble)) {
	var active []trouble
	var before trouble
	for at := list[0].from; at != endless; {
		active = slices.DeleteFunc(active, func(t trouble) bool { return t.to <= at })
		for len(list) > 0 && list[0].from <= at {
			active, list = append(active, list[0]), list[1:]
		}
		var now trouble
		for i := range active {
			now.add(&active[i])
		}
		if now != before {
			was := before
			r.net.At(event.Time(at), func() { change(on, was, now) })
			before = now
		}
		next := endless
		if len(list) > 0 {
			next = list[0].from
		}
		for i := range active {
			next = min(next, active[i].to)
		}
		at = next
	}
}

// add adds one to what is wrong at a time.
func (t *trouble) add(o *trouble) {
	t.down = t.down || o.down
	if o.Rate != 0 && (t.Rate == 0 || o.Rate < t.Rate) {
		t.Rate = o.Rate
	}
	t.Delay = max(t.Delay, o.Delay)
	t.Loss = uint32(uint64(t.Loss) + uint64(o.Loss) - uint64(t.Loss)*uint64(o.Loss)/1e9)
	for side := range t.Void {
		t.Void[side] = t.Void[side] || o.Void[side]
	}
}
