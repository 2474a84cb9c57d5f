package sweep

import (
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/fabric/lab"
)

// Plan is what is played: a scenario with each of the seeds and each
// combination of the settings' values.
type Plan struct {
	Name     string // of the scenario, for reports
	Text     []byte // its TOML
	Before   []byte // what Set has made Text of, for the lines of mistakes; nil: Text
	Seeds    []uint64
	Settings []Setting
}

// Setting is a setting of the scenario with the values that it has in turn.
type Setting struct {
	Key    string // as in network.routing or traffic.0.load
	Values []string
}

// Run is one of a plan. Index is its place among all.
type Run struct {
	Index  int
	Seed   uint64
	Values []string // of the plan's settings
}

// MostRuns is how many runs a plan may have.
const MostRuns = 1 << 20

// ParseSetting reads KEY=VALUE[,VALUE...]. A value with a comma has double
// quotes around it.
func ParseSetting(text string) (s Setting, err error) {
	key, values, ok := strings.Cut(text, "=")
	if s.Key = strings.TrimSpace(key); !ok || s.Key == "" || values == "" {
		return s, fmt.Errorf("%q is no setting with values: KEY=VALUE[,VALUE...], as network.routing=ecmp,spray", text)
	}
	r := csv.NewReader(strings.NewReader(values))
	r.TrimLeadingSpace = true
	if s.Values, err = r.Read(); err != nil {
		return s, fmt.Errorf("%s: the values %s: %w", s.Key, values, err)
	}
	for i, v := range s.Values {
		if v == "" || slices.Contains(s.Values[:i], v) {
			return s, fmt.Errorf("%s has the value %q twice, or none", s.Key, v)
		}
	}
	return s, nil
}

// ParseSeeds reads numbers and ranges of them, such as 1-100 or 1,5,7-9.
func ParseSeeds(text string) (seeds []uint64, err error) {
	for _, part := range strings.Split(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		a, err := strconv.ParseUint(strings.TrimSpace(first), 10, 63)
		b := a
		if err == nil && isRange {
			b, err = strconv.ParseUint(strings.TrimSpace(last), 10, 63)
		}
		if err != nil || b < a {
			return nil, fmt.Errorf("%q are no seeds: numbers, and ranges such as 1-100", text)
		}
		if b-a >= MostRuns || len(seeds) > MostRuns {
			return nil, fmt.Errorf("%q are more than %d seeds", text, MostRuns)
		}
		for s := a; ; s++ {
			seeds = append(seeds, s)
			if s == b {
				break
			}
		}
	}
	sorted := slices.Sorted(slices.Values(seeds))
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			return nil, fmt.Errorf("the seed %d is there twice", sorted[i])
		}
	}
	return seeds, nil
}

// Check says what is wrong with a plan: all settings and their values are
// tried, so that no run fails by one.
func (p *Plan) Check() error {
	if len(p.Seeds) == 0 {
		return fmt.Errorf("a sweep has at least one seed")
	}
	if n := p.Size(); n == 0 || n > MostRuns {
		return fmt.Errorf("the settings and seeds are no runs, or more than %d", MostRuns)
	}
	for i, s := range p.Settings {
		switch s.Key {
		case "seed":
			return fmt.Errorf("seed is no setting of a sweep: its seeds are said by themselves, with --seeds")
		case "name":
			return fmt.Errorf("name is no setting of a sweep: all of its runs have one name")
		}
		for _, other := range p.Settings[:i] {
			if other.Key == s.Key {
				return fmt.Errorf("%s is there twice", s.Key)
			}
		}
	}
	for values := range p.combinations() {
		s, err := p.Scenario(Run{Seed: p.Seeds[0], Values: values})
		if err != nil {
			return err
		}
		if err := lab.Check(s); err != nil {
			return fmt.Errorf("with %s: %w", p.settings(values), err)
		}
	}
	return nil
}

// Size returns how many runs the plan has, where they are not more than
// MostRuns, and else a number that is larger.
func (p *Plan) Size() int {
	n := int64(len(p.Seeds))
	for _, s := range p.Settings {
		n = min(n, MostRuns+1) * min(int64(len(s.Values)), MostRuns+1)
	}
	return int(min(n, MostRuns+1))
}

// combinations yields the values of the settings, the last changing first.
func (p *Plan) combinations() func(func([]string) bool) {
	return func(yield func([]string) bool) {
		for i := range p.Size() / len(p.Seeds) {
			values := make([]string, len(p.Settings))
			for j := len(p.Settings) - 1; j >= 0; j-- {
				of := p.Settings[j].Values
				values[j] = of[i%len(of)]
				i /= len(of)
			}
			if !yield(values) {
				return
			}
		}
	}
}

// Runs returns the runs of a shard, one of shards, counted from 1: each
// shards-th of them, so that shards have as much to do as each other. All are
// the runs of shard 1 of 1.
func (p *Plan) Runs(shard, shards int) (runs []Run) {
	i := 0
	for values := range p.combinations() {
		for _, seed := range p.Seeds {
			if i%shards == shard-1 {
				runs = append(runs, Run{Index: i, Seed: seed, Values: values})
			}
			i++
		}
	}
	return runs
}

// Scenario returns what a run plays.
func (p *Plan) Scenario(r Run) (s lab.Scenario, err error) {
	text := p.Text
	for i, v := range r.Values {
		if text, err = lab.Set(text, p.Settings[i].Key, v); err != nil {
			return s, err
		}
	}
	before := p.Before
	if before == nil {
		before = p.Text
	}
	if s, err = lab.ParseChanged(before, text); err != nil {
		return s, fmt.Errorf("with %s: %w", p.settings(r.Values), err)
	}
	s.Seed = r.Seed
	if s.Name == "" {
		s.Name = p.Name
	}
	return s, nil
}

// settings says values in words.
func (p *Plan) settings(values []string) string {
	if len(values) == 0 {
		return "the scenario's settings"
	}
	var parts []string
	for i, v := range values {
		parts = append(parts, p.Settings[i].Key+"="+v)
	}
	return strings.Join(parts, " ")
}

// Digest names the plan: equal digests are equal plans.
func (p *Plan) Digest() string {
	h := sha256.New()
	fmt.Fprintf(h, "%d %s", len(p.Text), p.Text)
	for _, s := range p.Settings {
		fmt.Fprintf(h, " %q %q", s.Key, s.Values)
	}
	fmt.Fprintf(h, " %d", p.Seeds)
	return hex.EncodeToString(h.Sum(nil)[:8])
}
