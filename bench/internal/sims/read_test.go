package sims

import (
	"bytes"
	"errors"
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

// star is a network of four hosts.
const star = "5 1 4\n4\n0 4 100Gbps 1000ns 0\n1 4 100Gbps 1000ns 0\n2 4 100Gbps 1000ns 0\n3 4 100Gbps 1000ns 0\n"

func starAlone(t testing.TB) *alone {
	t.Helper()
	a, err := newAlone(star)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The delays there and back, a payload through each cable, and all bytes
// through the slowest.
func TestAlone(t *testing.T) {
	t.Parallel()
	slow, err := newAlone(strings.Replace(star, "3 4 100Gbps 1000ns", "3 4 25Gbps 2000ns", 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		of      *alone
		dst     int32
		bytes   int64
		ns      int64
		because string
	}{
		{starAlone(t), 1, 1000, 4000 + 2*81 + 83, ""},
		{starAlone(t), 1, 10_000, 4000 + 2*81 + 838, ""},
		{slow, 3, 10_000, 6000 + 81 + 327 + 3353, ""},
		{slow, 0, 1, 0, "host 0 sends to itself"},
		{slow, 4, 1, 0, "hosts are 0 to 3"},
		{slow, -1, 1, 0, "hosts are 0 to 3"},
	} {
		ns, err := c.of.of(0, c.dst, c.bytes)
		if c.because != "" {
			wants(t, err, c.because)
		} else if err != nil || ns != c.ns {
			t.Errorf("%d bytes to host %d: %d ns, %v, want %d", c.bytes, c.dst, ns, err, c.ns)
		}
	}
	_, err = newAlone("5 1")
	wants(t, err, "")
}

func TestReadFCT(t *testing.T) {
	t.Parallel()
	out, a := text(t, "fct.txt"), starAlone(t)
	all, err := readFCT(out, 4, a)
	if err != nil {
		t.Fatal(err)
	}
	var r Run
	if err := r.slowdowns(all, a); err != nil {
		t.Fatal(err)
	}
	// The last flow ends 346.33 us after the first has begun, which is not
	// that of the first line.
	if r.Flows != 4 || r.Last != 346.33 || *r.Short != (Slowdowns{1, 2, 2}) || r.Long != 2 {
		t.Errorf("%+v, %+v", r, r.Short)
	}
	for change, say := range map[[2]string]string{
		{"46039\n", "0\n"}:               `fct.out:3: "0" is no number above 0`,
		{"46039\n", "46040\n"}:           "fct.out:3: alone the flow takes 46040 ns there, and 46039",
		{"0b000301 10001", "x 10001"}:    `fct.out:3: "x" is no address`,
		{"0b000301 10001", "0b1 10001"}:  "fct.out:3: host 0 sends to itself",
		{"0b000301 10001", "b0901 1000"}: "fct.out:3: topology: a path",
		{" 4245 4245", " 4245"}:          "fct.out:1 has 7 words, not 8",
	} {
		_, err := readFCT([]byte(strings.Replace(string(out), change[0], change[1], 1)), 4, a)
		wants(t, err, say)
	}
	_, err = readFCT(out, 5, a)
	wants(t, err, "4 of 5 flows have completed")
	wants(t, (&Run{}).slowdowns(nil, a), "no flow has completed")
}

// Both simulators are measured by one formula: the same times of the same flows
// are the same slowdowns, whatever the simulators say of them.
func TestOneMeasure(t *testing.T) {
	t.Parallel()
	a := starAlone(t)
	theirs, err := readFCT(text(t, "fct.txt"), 4, a)
	if err != nil {
		t.Fatal(err)
	}
	mine, err := readFlows(strings.NewReader(`flow,from,to,bytes,start_us,end_us,ideal_us,slowdown
0,h2,h3,10000,0,10,2,5
1,h0,h1,1000,1,5.245,0.1,42
2,h0,h3,500000,2,92,1,90
3,h2,h0,2000000,3,346.33,1,343
`))
	if err != nil {
		t.Fatal(err)
	}
	var x, y Run
	if err := errors.Join(x.slowdowns(mine, a), y.slowdowns(theirs, a)); err != nil {
		t.Fatal(err)
	}
	if math.Abs(x.Last-y.Last) > 1e-9 || math.Abs(x.Short.P50-y.Short.P50) > 1e-9 || math.Abs(x.Short.P95-y.Short.P95) > 1e-9 || math.Abs(x.Long-y.Long) > 1e-9 {
		t.Errorf("ours %+v %+v, ns-3 %+v %+v", x, x.Short, y, y.Short)
	}
}

func TestReadOurs(t *testing.T) {
	t.Parallel()
	out := text(t, "sim.json")
	var r Run
	if err := readOurs(out, 3, &r); err != nil || r.Last != 42.5 || r.Hops != 600 || r.Events != 1000 {
		t.Errorf("%+v, %v", r, err)
	}
	wants(t, readOurs(out, 4, &Run{}), "3 of 4 flows have completed")
	wants(t, readOurs([]byte("{"), 4, &Run{}), "unexpected end")
}

func TestReadFlows(t *testing.T) {
	t.Parallel()
	const head = "from,to,bytes,start_us,end_us\n"
	all, err := readFlows(strings.NewReader(head + "h0,h1,10,0.5,1.5\nh1,h0,10,0,2.5\n"))
	if err != nil || len(all) != 2 || all[0] != (done{0, 1, 10, 500, 1000}) || meanEnd(all) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	for table, say := range map[string]string{
		"": "no flows", head: "no flows", "from,to,bytes,start_us,end\n1,2,3,4,5\n": "no column end_us",
		head + "h0,h1,10,0,\n":     `flows.csv:2: end_us: strconv`,
		head + "h0,h1,10,0,NaN\n":  `flows.csv:2: end_us: "NaN" is no time`,
		head + "s0,h1,10,0,1\n":    "flows.csv:2: from: strconv",
		head + "h0,h1,many,0,1\n":  "flows.csv:2: bytes: strconv",
		head + "h0,h1,10,2,1.5\n":  "flows.csv:2: the flow ends before it has begun",
		head + "h0,h1,10,-2,1.5\n": `"-2" is no time`,
	} {
		_, err := readFlows(strings.NewReader(table))
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
	a := starAlone(f)
	f.Fuzz(func(t *testing.T, out []byte, flows int) {
		for _, read := range []func(*Run) error{
			func(r *Run) error { return readHTSim(out, "htsim", flows, r) },
			func(r *Run) error {
				all, err := readFCT(out, flows, a)
				if err == nil {
					err = r.slowdowns(all, a)
				}
				return err
			},
			func(r *Run) error {
				all, err := readFlows(bytes.NewReader(out))
				if r.Flows = flows; err == nil {
					r.Mean = meanEnd(all)
				}
				return err
			},
			func(r *Run) error { return readOurs(out, flows, r) },
		} {
			var r Run
			if err := read(&r); err == nil && (r.Flows != flows || math.IsNaN(r.Last+r.Mean+r.Long)) {
				t.Errorf("%+v of %d flows", r, flows)
			}
		}
	})
}
