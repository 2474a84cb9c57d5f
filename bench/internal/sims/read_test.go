package sims

import (
	"math"
	"os"
	"strings"
	"testing"
)

func text(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// wants fails unless an error says something.
func wants(t *testing.T, err error, say string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), say) {
		t.Errorf("error %v, want one with %q", err, say)
	}
}

func TestReadHTSim(t *testing.T) {
	t.Parallel()
	out := text(t, "htsim.txt")
	var r Run
	if err := readHTSim(out, "htsim_roce", 2, &r); err != nil || r.Flows != 2 || r.Last != 10.25 || r.Mean != 7.375 {
		t.Errorf("%+v, %v", r, err)
	}
	wants(t, readHTSim(out, "htsim_roce", 3, &Run{}), "2 of 3 flows have completed")
	wants(t, readHTSim(nil, "htsim_roce", 1, &Run{}), "0 of 1 flows")
	for _, at := range []string{"soon", "", "-4", "NaN"} {
		wants(t, readHTSim([]byte("Flow x finished at "+at+" total"), "htsim_roce", 1, &Run{}), "is no number of microseconds")
	}
}

func TestReadFCT(t *testing.T) {
	t.Parallel()
	out := text(t, "fct.txt")
	var r Run
	if err := readFCT(out, 4, &r); err != nil {
		t.Fatal(err)
	}
	// The last flow ends 303 us after the first has begun, which is not
	// that of the first line.
	if r.Flows != 4 || r.Last != 303 || *r.Short != (Slowdowns{1, 2, 2}) || r.Long != 1.5 {
		t.Errorf("%+v, %+v", r, r.Short)
	}
	wants(t, readFCT(out, 5, &Run{}), "4 of 5 flows have completed")
	wants(t, readFCT([]byte("a b c\n"), 1, &Run{}), "fct.out:1 has 3 words, not 8")
	wants(t, readFCT([]byte(strings.Replace(string(out), "50000\n", "0\n", 1)), 4, &Run{}), `fct.out:3: "0" is no number above 0`)
	wants(t, readFCT([]byte("a b c d 1 2 3 x\n"), 1, &Run{}), `"x" is no number above 0`)
}

func TestReadOurs(t *testing.T) {
	t.Parallel()
	out := text(t, "sim.json")
	var r Run
	if err := readOurs(out, 3, &r); err != nil || r.Last != 42.5 || r.Hops != 600 || r.Events != 1000 || *r.Short != (Slowdowns{1, 2, 3}) || r.Long != 1.25 {
		t.Errorf("%+v, %+v, %v", r, r.Short, err)
	}
	wants(t, readOurs(out, 4, &Run{}), "3 of 4 flows have completed")
	wants(t, readOurs([]byte("{"), 4, &Run{}), "rocev2 sim: unexpected end")
	m, err := meanEnd(strings.NewReader("flow,end_us\n0,1.5\n1,2.5\n"))
	if err != nil || m != 2 {
		t.Errorf("%v, %v", m, err)
	}
	for table, say := range map[string]string{"": "no flows", "flow,end_us\n": "no flows", "flow,end\n1,2\n": "no column end_us", "end_us\n\"\"\n": "end_us: strconv"} {
		_, err := meanEnd(strings.NewReader(table))
		wants(t, err, say)
	}
}

func TestRank(t *testing.T) {
	t.Parallel()
	v := []float64{1, 2, 3, 4}
	for percent, want := range map[int]float64{1: 1, 25: 1, 50: 2, 51: 3, 75: 3, 99: 4, 100: 4} {
		if got := rank(v, percent); got != want {
			t.Errorf("%d %% of %v: %v, want %v", percent, v, got, want)
		}
	}
}

// Whatever programs print, no figure comes out that is none.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"htsim.txt", "fct.txt", "sim.json"} {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, 2)
	}
	f.Fuzz(func(t *testing.T, out []byte, flows int) {
		for _, read := range []func(*Run) error{
			func(r *Run) error { return readHTSim(out, "htsim", flows, r) },
			func(r *Run) error { return readFCT(out, flows, r) },
			func(r *Run) error { return readOurs(out, flows, r) },
		} {
			var r Run
			if err := read(&r); err == nil && (r.Flows != flows || math.IsNaN(r.Last+r.Mean+r.Long)) {
				t.Errorf("%+v of %d flows", r, flows)
			}
		}
	})
}
