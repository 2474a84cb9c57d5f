package sweep

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/lab"
)

// The runs of a scenario with tenants and a job are compared by each of them,
// and by the iterations of the job, as each run tells of them.
func TestTenants(t *testing.T) {
	t.Parallel()
	p := &Plan{
		Name: "tenants", Seeds: []uint64{1, 2, 3, 4, 5, 6, 7},
		Text: []byte("[network]\ntopology = \"star\"\nhosts = 8\n[[traffic]]\nname = \"job\"\nkind = \"ring\"\nhosts = \"0-3\"\nbytes = \"64KiB\"\niterations = 3\n" +
			"[[traffic]]\nname = \"store\"\nkind = \"permutation\"\nbytes = \"64KiB\"\ntransport = \"roce\"\n" +
			"[[traffic]]\nname = \"store\"\nkind = \"permutation\"\nbytes = \"16KiB\"\ntransport = \"tcp\"\n"),
		Settings: []Setting{{"traffic.1.bytes", []string{"64KiB", "512KiB"}}},
	}
	all := played(t, p, p.Runs(1, 1), 2)
	groups, notes := Compare(all)
	if len(groups) != 2 || len(notes) > 0 {
		t.Fatalf("%d groups, %q", len(groups), notes)
	}
	find := func(list []Measure, name string) *Measure {
		i := slices.IndexFunc(list, func(m Measure) bool { return m.Name == name })
		if i < 0 {
			t.Fatalf("there is no %q", name)
		}
		return &list[i]
	}
	for i, g := range groups {
		for name, of := range map[string]func(s *lab.Summary) float64{
			"job: iteration, us, mean":         func(s *lab.Summary) float64 { return meanOf(s.Traffic[0].Iterations) },
			"job: iteration, us, longest":      func(s *lab.Summary) float64 { return slices.Max(s.Traffic[0].Iterations) },
			"traffic 2, store: slowdown, mean": func(s *lab.Summary) float64 { return s.Traffic[1].Slowdown.Mean },
			"traffic 3, store: slowdown, p99":  func(s *lab.Summary) float64 { return s.Traffic[2].Slowdown.P99 },
			"traffic 3, store: last flow, us":  func(s *lab.Summary) float64 { return s.Traffic[2].LastUs },
		} {
			m := find(g.Measures, name)
			var want, ratios []float64
			for _, r := range all {
				if r.settings() != g.Name {
					continue
				}
				want = append(want, of(r.Result))
				for _, f := range all {
					if f.Seed == r.Seed && f.settings() == groups[0].Name {
						ratios = append(ratios, of(r.Result)/of(f.Result))
					}
				}
			}
			if slices.Sort(want); !slices.Equal(m.Values, want) || m.Median != want[3] || !m.Known {
				t.Errorf("%s, %s: %v, want %v", g.Name, name, m.Values, want)
			}
			if i == 0 {
				continue
			}
			if slices.Sort(ratios); !slices.Equal(find(g.Ratios, name).Values, ratios) {
				t.Errorf("%s, %s: ratios of %v, want %v", g.Name, name, find(g.Ratios, name).Values, ratios)
			}
		}
	}
	if m := find(groups[1].Ratios, "job: iteration, us, mean"); m.Low <= 1 {
		t.Errorf("eight times the storage costs the job %.3f to %.3f", m.Low, m.High)
	}
	var b bytes.Buffer
	if err := Table(&b, all); err != nil || strings.Count(b.String(), "job: iteration, us, mean") != 3 || strings.Contains(b.String(), "flows failed") {
		t.Errorf("%v\n%s", err, &b)
	}
}

// A traffic that is alone has the measures of all flows, and its iterations. Of
// many only the first have measures of their own, and that is said. A record
// that an older program has left has none of iterations.
func TestTenantsAreFew(t *testing.T) {
	t.Parallel()
	records := func(n int, iteration *lab.TimesUs) []*Record {
		s := &lab.Summary{Completed: n, LastUs: 5}
		for i := range n {
			s.Traffic = append(s.Traffic, lab.TrafficSummary{Name: fmt.Sprint("t", i), Completed: 1, LastUs: 5, Iteration: iteration})
		}
		return []*Record{{Of: 1, Result: s}}
	}
	count := func(list []*Record) (n int, notes []string) {
		groups, notes := Compare(list)
		for _, m := range groups[0].Measures {
			if strings.HasPrefix(m.Name, "t") && strings.Contains(m.Name, ":") {
				n++
			}
		}
		return n, notes
	}
	times := &lab.TimesUs{Mean: 1, P50: 1, P95: 1, P99: 1, Max: 1}
	for _, c := range []struct {
		traffics  int
		iteration *lab.TimesUs
		want      int
	}{{1, nil, 0}, {1, times, 4}, {2, nil, 2}, {2, times, 10}, {16, times, 80}, {20, times, 80}} {
		if n, notes := count(records(c.traffics, c.iteration)); n != c.want || (len(notes) > 0) != (c.traffics > 16) {
			t.Errorf("%d traffics have %d measures, want %d; %q", c.traffics, n, c.want, notes)
		}
	}
}

// meanOf is the mean, from the smallest on, as it is in a result.
func meanOf(v []float64) float64 {
	sum := 0.0
	for _, x := range slices.Sorted(slices.Values(v)) {
		sum += x
	}
	return sum / float64(len(v))
}
