package lab

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/ib"
)

// Traffic is flows. Kind is one of:
//
//   - flow: Bytes from host From to host To
//   - incast: Bytes from each of Senders hosts, 1 to Senders, to host 0
//   - permutation: Bytes from each host to another one, by the seed; with
//     Across to one at another switch, with that many hosts a switch
//   - all-to-all: Bytes from each host to each other, all at once
//   - load: flows with sizes of the distribution Sizes arrive at random, which
//     asks each host's cable for the share Load
//   - bursts: Senders random hosts send Bytes to a random one, again and again,
//     which takes the share Load of all
//   - list: the flows of List, in one of the formats of package tracefile; see
//     Format
//   - ring, tree, halving, hierarchical: an all-reduce of Bytes by all hosts,
//     or the first Ranks of them, as package traffic has them
//   - chakra: what the execution traces in List say, see package chakra, each
//     rank of its own
//   - all-gather, reduce-scatter, broadcast, pairwise: other collectives of
//     these, see package traffic; pairwise is an all-to-all in steps
//
// Without Bytes a flow, an incast, a permutation and an all-to-all go on until
// the end.
//
// Hosts says which hosts they are between, where not all: then they are
// numbered from 0 in its order.
type Traffic struct {
	Kind    string
	Name    string // of what the result says of it
	Hosts   string // hosts and ranges of them, as in "0-7,16,32-62/2", where /2 takes every other one; "": all
	From    int
	To      int
	Senders int
	Across  int
	Ranks   int
	Bytes   Bytes
	Sizes   string // websearch, hadoop or alistorage
	Load    float64
	Start   Time
	Until   Time   // of load and bursts, when arrivals end; 0: Scenario.Until
	Op      string // write, send or read; "": write
	SrcPort int    `toml:"src_port"` // of a flow: chooses its way

	Group      int  // of hierarchical: ranks of a machine, that follow each other
	Iterations int  // of a collective, one after the other; 0: 1
	Compute    Time // that each rank takes between two iterations

	Algorithm string // of the all-reduces of chakra: a kind of all-reduce; "": ring
	Groups    string // of chakra: the ranks of groups that its traces do not describe, as {"0": [0, 1]}

	List   string // flows, see Kind; of pairwise the bytes that each rank has for each, of chakra what package chakra packs
	File   string // where they are: its text belongs into List, see Files. With %d it is a file for each rank
	Format string // csv, ns3 or htsim; "": csv
	Rebase bool   // the first flow of the list begins at Start, and all others as much later

	Tenant

	// Source, if it is not nil, starts the flows, instead of what Kind
	// says. It is called at Start. The network is then one part, whatever
	// Scenario.Cores says.
	Source func(*Source) `toml:"-"`
}

// Tenant is what a Traffic has in the place of what [Adapter] says of all, and
// by which switches treat it.
type Tenant struct {
	DSCP       int    // of data; 0: the adapter's
	Class      string // of data: the name of a Class, or a DSCP; "": the adapter's
	Control    string // congestion control; "": the adapter's
	Window     Bytes  // 0: the adapter's
	Recovery   string // "": the adapter's
	QueuePairs int    `toml:"queue_pairs"` // that each flow is divided among, each with a way of its own; 0: 1
	Rate       Rate   // of each flow, at most; 0: no limit
	Transport  string // roce or tcp; "": roce
	TCP        TCP    `toml:"tcp"` // of transport tcp
}

// Names that a Traffic may have.
var (
	operations  = []string{"write", "send", "read"}
	formats     = []string{"csv", "ns3", "htsim"}
	allReduces  = []string{"ring", "tree", "halving", "hierarchical"}
	collectives = append(slices.Clone(allReduces), "all-gather", "reduce-scatter", "broadcast", "pairwise")
	kinds       = append([]string{"flow", "incast", "permutation", "all-to-all", "load", "bursts", "list", "chakra"}, collectives...)
)

// othersOfTraffic says which settings are of other kinds of traffic, or of
// others beside them.
func (s *Scenario) othersOfTraffic() (all error) {
	for i := range s.Traffic {
		t := &s.Traffic[i]
		ranks := strings.Join(collectives, " ")
		of := fmt.Sprintf("traffic %d", i+1)
		err := unused(of, t.Kind, kinds, []setting{
			{"from or to", t.From != 0 || t.To != 0, "flow"},
			{"hosts", t.Hosts != "", "incast permutation all-to-all load bursts chakra " + ranks},
			{"src_port", t.SrcPort != 0, "flow incast permutation all-to-all"},
			{"op", t.Op != "", "flow incast permutation all-to-all load bursts list"},
			{"list or file", t.List != "" || t.File != "", "list pairwise chakra"},
			{"format or rebase", t.Format != "" || t.Rebase, "list"},
			{"senders", t.Senders != 0, "incast bursts"},
			{"across", t.Across != 0, "permutation"},
			{"ranks, iterations or compute", t.Ranks != 0 || t.Iterations != 0 || t.Compute != 0, ranks},
			{"group", t.Group != 0, "hierarchical chakra"},
			{"algorithm or groups", t.Algorithm != "" || t.Groups != "", "chakra"},
			{"sizes", t.Sizes != "", "load"},
			{"bytes beside sizes", t.Sizes != "" && t.Bytes != 0, ""},
			{"bytes beside list or file", (t.List != "" || t.File != "") && t.Bytes != 0, ""},
			{"bytes", t.Bytes != 0, "flow incast permutation all-to-all load bursts " + ranks},
			{"load or until", t.Load != 0 || t.Until != 0, "load bursts"},
		})
		if err == nil && t.DSCP != 0 && t.Class != "" {
			err = fmt.Errorf("%s: dscp and class say the same: take one of them out", of)
		}
		all = join(all, err)
	}
	return all
}

// check says what is wrong with numbers of all kinds.
func (t *Traffic) check(until Time) error {
	switch {
	case !inRange(t.Start, t.Until, t.Compute):
		return fmt.Errorf("start or another time is negative, or above %v", mostTime)
	case t.Bytes < 0 || t.Bytes > mostFlow:
		return fmt.Errorf("bytes is %v: a flow has at most %v", exact(t.Bytes), Bytes(mostFlow))
	case t.SrcPort != 0 && (t.SrcPort < ib.MinSrcPort || t.SrcPort+max(t.QueuePairs, 1)-1 > math.MaxUint16):
		return fmt.Errorf("src_port is %d: it is %d to %d, for each queue pair the next", t.SrcPort, ib.MinSrcPort, math.MaxUint16)
	case until > 0 && t.Start >= until:
		return fmt.Errorf("it starts at %v, and the run ends at %v", t.Start, until)
	case strings.ContainsFunc(t.Name, notPrinted):
		return fmt.Errorf("name has a character that cannot be printed: %q", t.Name)
	}
	return nil
}

// between returns the hosts that a traffic is between.
func (t *Traffic) between(all int) (list []int, err error) {
	if t.Hosts == "" {
		for h := range all {
			list = append(list, h)
		}
		return list, nil
	}
	seen := make([]bool, all)
	for part := range strings.SplitSeq(t.Hosts, ",") {
		first, last, step, ok := hostRange(strings.TrimSpace(part), all)
		if !ok {
			return nil, fmt.Errorf("hosts has %.40q: it is a host of 0 to %d, or some, as 0-7 or 0-14/2", part, all-1)
		}
		for h := first; h <= last; h += step {
			if seen[h] {
				return nil, fmt.Errorf("hosts has host %d twice", h)
			}
			seen[h] = true
			list = append(list, h)
		}
	}
	if len(list) < 2 {
		return nil, fmt.Errorf("hosts is %q: it takes two hosts or more", t.Hosts)
	}
	return list, nil
}

// hostRange reads "3", "0-7" or "0-14/2".
func hostRange(text string, all int) (first, last, step int, ok bool) {
	text, by, stepped := strings.Cut(text, "/")
	from, to, ranged := strings.Cut(text, "-")
	if !ranged {
		to = from
	}
	step = 1
	var err [3]error
	first, err[0] = strconv.Atoi(from)
	last, err[1] = strconv.Atoi(to)
	if stepped {
		step, err[2] = strconv.Atoi(by)
	}
	ok = errors.Join(err[:]...) == nil && first >= 0 && first <= last && last < all && step >= 1 && step <= all && (ranged || !stepped)
	return first, last, step, ok
}
