package topofile

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/fabric/topology"
)

// Units as ns-3 writes them (classes DataRate and Time).
var (
	ns3Rates = []unit{
		{"bps", 1}, {"b/s", 1}, {"Bps", 8}, {"B/s", 8},
		{"kbps", 1e3}, {"kb/s", 1e3}, {"Kbps", 1e3}, {"Kb/s", 1e3}, {"kBps", 8e3}, {"kB/s", 8e3}, {"KBps", 8e3}, {"KB/s", 8e3},
		{"Mbps", 1e6}, {"Mb/s", 1e6}, {"MBps", 8e6}, {"MB/s", 8e6}, {"Gbps", 1e9}, {"Gb/s", 1e9}, {"GBps", 8e9}, {"GB/s", 8e9},
		{"Tbps", 1e12}, {"Tb/s", 1e12},
	}
	ns3Times = []unit{{"s", 1e12}, {"ms", 1e9}, {"us", 1e6}, {"ns", 1e3}, {"ps", 1}}
)

const second = int64(topology.MaxDelay) // of a time without a unit

// ns3 reads words, and knows in which line they stand.
type ns3 struct {
	rest string
	line int // of the next word
}

// word returns the next one, "" at the end.
func (r *ns3) word() string {
	for r.rest != "" {
		switch c := r.rest[0]; {
		case c == '\n':
			r.line++
			r.rest = r.rest[1:]
		case c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f':
			r.rest = r.rest[1:]
		default:
			i := strings.IndexAny(r.rest, " \t\r\n\v\f")
			if i < 0 {
				i = len(r.rest)
			}
			w := r.rest[:i]
			r.rest = r.rest[i:]
			return w
		}
	}
	return ""
}

func (r *ns3) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d: %w", r.line, fmt.Errorf(format, args...))
}

// number reads a whole number.
func (r *ns3) number(what string, least, most int) (int, error) {
	w := r.word()
	if w == "" {
		return 0, r.errorf("the file ends, and %s should follow", what)
	}
	n, err := strconv.Atoi(w)
	if err != nil || n < least || n > most {
		return 0, r.errorf("%s is %.40q: it is %d to %d", what, w, least, most)
	}
	return n, nil
}

// readNS3 reads a topology.txt. As ns-3 does, it stops after the number of
// links that the first line has: the files that come with ns-3 have more links
// there, and an explanation.
func readNS3(text string) (*topology.Graph, error) {
	r := &ns3{rest: text, line: 1}
	nodes, err := r.number("the number of nodes", 2, topology.MaxNodes)
	if err != nil {
		return nil, err
	}
	switches, err := r.number("the number of switches", 0, min(nodes-1, topology.MaxSwitches))
	if err != nil {
		return nil, err
	}
	links, err := r.number("the number of links", 1, topology.MaxLinks)
	if err != nil {
		return nil, err
	}
	m, err := r.nodes(nodes, switches)
	if err != nil {
		return nil, err
	}
	var list []topology.Link
	var wrong mistakes
	for range links {
		l, err := r.link(m)
		if wrong.add(err) || r.rest == "" && err != nil {
			break
		}
		list = append(list, l)
	}
	if len(wrong) > 0 {
		return nil, wrong.all()
	}
	g, err := topology.Join(nodes-switches, switches, list, m.names())
	if err != nil {
		return nil, fmt.Errorf("the network of the file: %w", err)
	}
	return g, nil
}

// numbers has the node of each number in a file.
type numbers []int32

// nodes reads which nodes are switches, and numbers hosts and switches by their
// order.
func (r *ns3) nodes(nodes, switches int) (numbers, error) {
	isSwitch := make([]bool, nodes)
	for range switches {
		id, err := r.number("a switch", 0, nodes-1)
		if err != nil {
			return nil, err
		}
		if isSwitch[id] {
			return nil, r.errorf("node %d is named twice among the switches", id)
		}
		isSwitch[id] = true
	}
	m := make(numbers, nodes)
	host, sw := int32(0), int32(nodes-switches)
	for id := range m {
		if isSwitch[id] {
			m[id] = sw
			sw++
		} else {
			m[id] = host
			host++
		}
	}
	return m, nil
}

// names returns the number in the file of each node, as a text.
func (m numbers) names() []string {
	names := make([]string, len(m))
	for id, node := range m {
		names[node] = strconv.Itoa(id)
	}
	return names
}

// link reads one. It reads all of it, also where something is wrong.
func (r *ns3) link(m numbers) (l topology.Link, err error) {
	var wrong [5]error
	a, err := r.number("an end of a link", 0, len(m)-1)
	wrong[0] = err
	b, err := r.number("the other end of the link", 0, len(m)-1)
	if wrong[1] = err; err == nil && wrong[0] == nil && a == b {
		wrong[1] = r.errorf("a link from node %d to itself", a)
	}
	l.A, l.B = m[a], m[b]
	if l.Rate, err = quantity(r.word(), ns3Rates, 0); err == nil {
		err = checkRate(l.Rate)
	}
	if err != nil {
		wrong[2] = r.errorf("rate: %w", err)
	}
	if l.Delay, err = quantity(r.word(), ns3Times, second); err == nil {
		err = checkDelay(l.Delay)
	}
	if err != nil {
		wrong[3] = r.errorf("delay: %w", err)
	}
	if l.Loss, err = lossOf(r.word()); err != nil {
		wrong[4] = r.errorf("error rate: %w", err)
	}
	return l, cmp.Or(wrong[:]...)
}

// lossOf reads a share of packets.
func lossOf(text string) (uint32, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0 && v <= 1) {
		return 0, fmt.Errorf("%.40q is no share of packets, from 0 to 1", text)
	}
	exact := v * 1e9
	n := math.Round(exact)
	if math.Abs(n-exact) > exact/1000 {
		return 0, fmt.Errorf("%.40q is no multiple of 1e-09", text)
	}
	return uint32(n), nil
}
