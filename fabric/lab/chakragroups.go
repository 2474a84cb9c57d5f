package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gosoftroce/rocev2/fabric/traffic/chakra"
)

// execGroup is ranks that carry out collectives together, and these.
type execGroup struct {
	name    string
	members []int
	at      map[int]int // the place of a rank among members
	least   int         // the first rank
	count   []int       // collectives of each member, so far
	comms   []*comm     // those of the first rank
	nodes   []*chakra.Node
}

// execGroups has the groups that each rank knows, by their names. Ranks that
// know one by the same name and the same members have it in common.
type execGroups struct {
	all   map[string]*execGroup   // that all know, if they do not know another one of that name
	ranks []map[string]*execGroup // that a rank knows
	known map[string]*execGroup
	list  []*execGroup // in the order in which they are known
}

// groupsOf returns the groups that traces describe, and those that a scenario
// names, of all ranks, in JSON.
func groupsOf(traces []*chakra.Trace, named string) (g execGroups, err error) {
	g = execGroups{all: map[string]*execGroup{}, ranks: make([]map[string]*execGroup, len(traces)), known: map[string]*execGroup{}}
	more := map[string][]int32{"": nil} // everyone
	if named != "" {
		if err := json.Unmarshal([]byte(named), &more); err != nil {
			return g, fmt.Errorf(`groups is no list of the ranks of each group, as {"0": [0, 1]}: %w`, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(more)) {
		if g.all[name], err = g.add(name, more[name]); err != nil {
			return g, fmt.Errorf("groups: %w", err)
		}
	}
	for rank, t := range traces {
		g.ranks[rank] = map[string]*execGroup{}
		for _, d := range t.Groups {
			if g.ranks[rank][d.Name], err = g.add(d.Name, d.Ranks); err != nil {
				return g, fmt.Errorf("trace of rank %d: %w", rank, err)
			}
		}
	}
	return g, nil
}

// add returns a group, which is new unless it is known. One without ranks has
// all.
func (g *execGroups) add(name string, ranks []int32) (*execGroup, error) {
	key := fmt.Sprint(name, ranks)
	if known := g.known[key]; known != nil {
		return known, nil
	}
	k := &execGroup{name: name, at: map[int]int{}}
	if len(ranks) == 0 {
		for rank := range g.ranks {
			ranks = append(ranks, int32(rank))
		}
	}
	for i, rank := range ranks {
		if _, twice := k.at[int(rank)]; twice || rank < 0 || int(rank) >= len(g.ranks) {
			return nil, fmt.Errorf("group %q has rank %d: there are 0 to %d, each once", name, rank, len(g.ranks)-1)
		}
		k.at[int(rank)], k.members = i, append(k.members, int(rank))
		if i == 0 || int(rank) < k.least {
			k.least = int(rank)
		}
	}
	k.count = make([]int, len(k.members))
	g.known[key], g.list = k, append(g.list, k)
	return k, nil
}

// of returns the group of a collective of a rank.
func (g *execGroups) of(rank int, n *chakra.Node) (*execGroup, error) {
	k := g.ranks[rank][n.Group]
	if k == nil {
		k = g.all[n.Group]
	}
	if k == nil {
		return nil, fmt.Errorf("group %q is described nowhere: say with groups which ranks it has", n.Group)
	}
	if _, in := k.at[rank]; !in {
		return nil, fmt.Errorf("the rank is not in group %q", n.Group)
	}
	if n.Group == "" && n.Some {
		return nil, errors.New("its involved_dim leaves out a dimension of the ranks, and nothing says how many dimensions they have: it needs a group (pg_name)")
	}
	return k, nil
}

// check says which ranks have other collectives of a group than its first one.
func (g *execGroups) check() error {
	for _, k := range g.list {
		for i, n := range k.count {
			if n != len(k.comms) {
				return fmt.Errorf("rank %d has %d collectives of group %q, and rank %d has %d", k.members[i], n, k.name, k.least, len(k.comms))
			}
		}
	}
	return nil
}
