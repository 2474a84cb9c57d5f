package traffic

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func seeded(seed uint64) Source { return rand.NewPCG(seed, 7) }

// near reports whether got is within parts of 1000 of want.
func near(got, want float64, parts float64) bool {
	return math.Abs(got-want) <= want*parts/1000
}

// TestMeans checks the exact means, and those of seeded draws: to 1 percent, as
// far as that many draws can show it.
func TestMeans(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sizes *Sizes
		mean  int64
	}{{WebSearch, 1_711_250}, {Hadoop, 120_421}, {AliStorage, 40_870}} {
		if got := c.sizes.Mean(); got != c.mean {
			t.Errorf("%v: mean %d, want %d", c.sizes, got, c.mean)
		}
		for seed := range uint64(3) {
			r := seeded(seed)
			const draws = 500_000
			sum := 0.0
			for range draws {
				sum += float64(c.sizes.Draw(r))
			}
			if got := sum / draws; !near(got, float64(c.mean), 10) {
				t.Errorf("%v, seed %d: the mean of %d draws is %.0f, want %d within 1%%", c.sizes, seed, draws, got, c.mean)
			}
		}
	}
}

// TestSharesArePublished counts how many draws are at most a point's bytes.
func TestSharesArePublished(t *testing.T) {
	t.Parallel()
	for _, s := range All() {
		r := seeded(1)
		const draws = 200_000
		points := s.Points()
		count := make([]int, len(points))
		for range draws {
			d := s.Draw(r)
			if d < 1 || d > points[len(points)-1].Bytes {
				t.Fatalf("%v: a flow of %d bytes", s, d)
			}
			for i, p := range points {
				if d <= p.Bytes {
					count[i]++
				}
			}
		}
		for i, p := range points {
			got, want := float64(count[i])/draws, float64(p.Share)/whole
			if tolerance := 5 * math.Sqrt(want*(1-want)/draws); math.Abs(got-want) > tolerance+1e-9 {
				t.Errorf("%v: %.4f of the flows have at most %d bytes, want %.4f", s, got, p.Bytes, want)
			}
		}
	}
}

// TestInverseIsExact goes to the ends and the middle of the distribution.
func TestInverseIsExact(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		u    uint64
		want int64
	}{
		{0, 1},
		{math.MaxUint64, 30_000_000},
		{1 << 63, 73_077},                    // 0.5: 50000 + 30000 * 10/13 and up
		{1 << 62, 25_001},                    // 0.25: half way from 20000 to 30000
		{3 << 62, 1_500_001},                 // 0.75
		{math.MaxUint64 / 10 * 9, 5_000_000}, // just below 0.9
	} {
		if got := WebSearch.at(c.u); got != c.want {
			t.Errorf("WebSearch at %x is %d, want %d", c.u, got, c.want)
		}
	}
}

func TestFixed(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{1, 2, 4096, maxBytes} {
		s, err := Fixed(n)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range []uint64{0, 1 << 63, math.MaxUint64} {
			if got := s.at(u); got != n {
				t.Errorf("Fixed(%d) draws %d", n, got)
			}
		}
		if m := s.Mean(); m < n-1 || m > n {
			t.Errorf("Fixed(%d) has a mean of %d", n, m)
		}
	}
}

func TestMinusLog(t *testing.T) {
	t.Parallel()
	check := func(u uint64) {
		// float64(u) may round up to 2^64: take the logarithm of the
		// rest.
		want := -math.Log(float64(u) / (1 << 64))
		if u > 1<<63 {
			want = -math.Log1p(-(float64(-u) / (1 << 64)))
		}
		got := float64(minusLog(u)) / (1 << 32)
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("-ln(%d/2^64) = %.12f, want %.12f", u, got, want)
		}
	}
	for shift := range 64 {
		check(1 << shift)
		check(1<<shift | 1)
		check(math.MaxUint64 >> shift)
	}
	r := seeded(3)
	for range 10_000 {
		check(r.Uint64() | 1)
	}
}

// TestExponential checks mean, variance and tail.
func TestExponential(t *testing.T) {
	t.Parallel()
	r := seeded(4)
	const draws = 1_000_000
	var sum, squares float64
	tail := 0
	for range draws {
		x := float64(exponential(r)) / (1 << 32)
		sum += x
		squares += x * x
		if x > 3 {
			tail++
		}
	}
	mean := sum / draws
	if !near(mean, 1, 5) || !near(squares/draws-mean*mean, 1, 10) || !near(float64(tail)/draws, math.Exp(-3), 20) {
		t.Errorf("mean %.4f, variance %.4f, %.5f above 3", mean, squares/draws-mean*mean, float64(tail)/draws)
	}
}

// TestSameEverywhere pins what a seed gives: integers decide, so every
// processor gives this.
func TestSameEverywhere(t *testing.T) {
	t.Parallel()
	s, err := Load{Hosts: 128, Sizes: WebSearch, Rate: 100e9, Load: 300_000, Until: 1e9}.Stream(seeded(5))
	if err != nil {
		t.Fatal(err)
	}
	n, digest := 0, uint64(0)
	for f, ok := s.Next(); ok; f, ok = s.Next() {
		n++
		for _, w := range []int64{f.At, f.Bytes, int64(f.Src), int64(f.Dst)} {
			digest = (digest ^ uint64(w)) * 0x9e3779b97f4a7c15
			digest ^= digest >> 29
		}
	}
	if n != wantFlows || digest != wantDigest {
		t.Errorf("%d flows with digest %#x, want %d, %#x", n, digest, wantFlows, uint64(wantDigest))
	}
}

const (
	wantFlows  = 261
	wantDigest = 0x95f12a98c3e302a3
)

// TestLoadIsWhatWasAsked checks the sum of bytes, the times and the senders.
func TestLoadIsWhatWasAsked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		load  Load
		parts float64
	}{
		{Load{Hosts: 128, Sizes: WebSearch, Rate: 100e9, Load: 300_000, Until: 200e9}, 20},
		{Load{Hosts: 320, Sizes: Hadoop, Rate: 100e9, Load: 500_000, Until: 5e9}, 20},
		{Load{Hosts: 16, Sizes: AliStorage, Rate: 25e9, Load: 800_000, Until: 500e9}, 20},
	} {
		s, err := c.load.Stream(seeded(6))
		if err != nil {
			t.Fatal(err)
		}
		sent, received := make([]int, c.load.Hosts), make([]int, c.load.Hosts)
		var bytes, last int64
		n := 0
		for f, ok := s.Next(); ok; f, ok = s.Next() {
			if f.At < last || f.At >= c.load.Until || f.Src == f.Dst {
				t.Fatalf("flow %+v after %d", f, last)
			}
			last = f.At
			bytes += f.Bytes
			sent[f.Src]++
			received[f.Dst]++
			n++
		}
		got := float64(bytes) * 8 * 1e12 / float64(c.load.Until) / float64(c.load.Hosts) / float64(c.load.Rate) * 1e6
		if !near(got, float64(c.load.Load), c.parts) {
			t.Errorf("%v: the load is %.1f of 10^6, want %d", c.load.Sizes, got, c.load.Load)
		}
		mean := float64(n) / float64(c.load.Hosts)
		for h := range sent {
			if d := 6 * math.Sqrt(mean); math.Abs(float64(sent[h])-mean) > d || math.Abs(float64(received[h])-mean) > d {
				t.Errorf("%v: host %d sends %d flows and receives %d, the mean is %.0f", c.load.Sizes, h, sent[h], received[h], mean)
			}
		}
	}
}

// TestBursts checks HPCC's incast: 60 senders, 500 KB, 2 percent.
func TestBursts(t *testing.T) {
	t.Parallel()
	b := Bursts{Hosts: 320, Senders: 60, Bytes: 500_000, Rate: 100e9, Load: 20_000, Until: 1e12}
	s, err := b.Stream(seeded(8))
	if err != nil {
		t.Fatal(err)
	}
	var bytes int64
	var burst []Flow
	bursts := 0
	for f, ok := s.Next(); ok; f, ok = s.Next() {
		bytes += f.Bytes
		burst = append(burst, f)
		if len(burst) < b.Senders {
			continue
		}
		senders := map[int32]bool{}
		for _, f := range burst {
			if f.At != burst[0].At || f.Dst != burst[0].Dst || f.Src == f.Dst || senders[f.Src] {
				t.Fatalf("burst %d: %+v behind %+v", bursts, f, burst[0])
			}
			senders[f.Src] = true
		}
		burst = burst[:0]
		bursts++
	}
	got := float64(bytes) * 8 / float64(b.Hosts) / float64(b.Rate) * 1000
	if len(burst) != 0 || !near(got, 20, 60) {
		t.Errorf("%d bursts and %d flows, a load of %.2f of 1000, want 20", bursts, len(burst), got)
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	a, err := Load{Hosts: 16, Sizes: Hadoop, Rate: 100e9, Load: 500_000, Until: 1e9}.Stream(seeded(1))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Bursts{Hosts: 16, Senders: 4, Bytes: 1000, Rate: 100e9, Load: 20_000, Until: 1e9}.Stream(seeded(2))
	if err != nil {
		t.Fatal(err)
	}
	var last int64
	small, n := 0, 0
	m := Merge(a, b)
	for f, ok := m.Next(); ok; f, ok = m.Next() {
		if f.At < last {
			t.Fatalf("%+v after %d", f, last)
		}
		last = f.At
		n++
		if f.Bytes == 1000 {
			small++
		}
	}
	if small == 0 || small%4 != 0 || small == n {
		t.Errorf("%d flows, %d of them of bursts", n, small)
	}
}

func TestPermutations(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := seeded(seed)
		plain, err := Permutation(r, 2+int(seed%30), 1)
		if err != nil {
			t.Fatal(err)
		}
		group := 1 + int(seed%7)
		across, err := PermutationAcross(r, group*(2+int(seed%5)), group, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			flows []Flow
			group int32
		}{{plain, 1}, {across, int32(group)}} {
			seen := map[int32]bool{}
			for i, f := range c.flows {
				if f.Src != int32(i) || seen[f.Dst] || f.Src/c.group == f.Dst/c.group || int(f.Dst) >= len(c.flows) {
					t.Fatalf("seed %d: flow %d is %+v, groups of %d", seed, i, f, c.group)
				}
				seen[f.Dst] = true
			}
		}
	}
}

// TestBelowIsUniform with a bound that is no power of two.
func TestBelowIsUniform(t *testing.T) {
	t.Parallel()
	r := seeded(9)
	var count [7]int
	const draws = 700_000
	for range draws {
		count[below(r, len(count))]++
	}
	for i, n := range count {
		if !near(float64(n), draws/7, 15) {
			t.Errorf("%d came %d times of %d", i, n, draws)
		}
	}
}

func TestAllToAllAndIncast(t *testing.T) {
	t.Parallel()
	flows, err := AllToAll(5, 3)
	if err != nil || len(flows) != 20 {
		t.Fatalf("%d flows, %v", len(flows), err)
	}
	seen := map[[2]int32]bool{}
	for i := 0; i < len(flows); i += 5 {
		to := map[int32]bool{}
		for _, f := range flows[i : i+5] {
			seen[[2]int32{f.Src, f.Dst}] = true
			to[f.Dst] = true
			if f.Src == f.Dst || f.Bytes != 3 {
				t.Errorf("flow %+v", f)
			}
		}
		if len(to) != 5 {
			t.Errorf("two of %v go to one host", flows[i:i+5])
		}
	}
	if len(seen) != 20 {
		t.Errorf("%d pairs", len(seen))
	}
	in, err := Incast(3, 9)
	if err != nil || len(in) != 3 || in[2] != (Flow{Bytes: 9, Src: 3}) {
		t.Errorf("%v, %v", in, err)
	}
}

// TestCollectivesSum carries out the steps on vectors of small numbers.
func TestCollectivesSum(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(int, int64) (Collective, error){"ring": Ring, "tree": Tree, "halving": HalvingDoubling} {
		for ranks := 1; ranks <= 33; ranks++ {
			for _, bytes := range []int64{1, 7, 64, 100} {
				c, err := make(ranks, bytes)
				if err != nil || c.Ranks() != ranks {
					t.Fatalf("%s of %d: %v", name, ranks, err)
				}
				checkSum(t, name, c, bytes)
			}
		}
	}
}

func checkSum(t *testing.T, name string, c Collective, bytes int64) {
	t.Helper()
	vectors := make([][]int, c.Ranks())
	want := make([]int, bytes)
	for i := range vectors {
		vectors[i] = make([]int, bytes)
		for j := range want {
			vectors[i][j] = (i + 1) * (j + 3)
			want[j] += vectors[i][j]
		}
	}
	for round := range c.Rounds() {
		sent := make([][]int, c.Ranks())
		for i := range vectors {
			if s := c.Step(i, round); s.To >= 0 {
				sent[i] = append(sent[i], vectors[i][s.Send.Offset:s.Send.Offset+s.Send.Bytes]...)
			}
		}
		for i := range vectors {
			s := c.Step(i, round)
			if s.To >= 0 {
				if o := c.Step(int(s.To), round); o.From != int32(i) || o.Recv != s.Send {
					t.Fatalf("%s of %d: in round %d rank %d sends %+v, the other receives %+v", name, c.Ranks(), round, i, s, o)
				}
			}
			if s.From < 0 {
				continue
			}
			for j, v := range sent[s.From] {
				at := &vectors[i][s.Recv.Offset+int64(j)]
				if s.Reduce {
					*at += v
				} else {
					*at = v
				}
			}
		}
	}
	for i, v := range vectors {
		for j := range v {
			if v[j] != want[j] {
				t.Fatalf("%s of %d ranks, %d bytes: rank %d has %d at %d, want %d", name, c.Ranks(), bytes, i, v[j], j, want[j])
			}
		}
	}
}

// TestCollectivesCost checks what each rank sends against the formulas.
func TestCollectivesCost(t *testing.T) {
	t.Parallel()
	const bytes = 1 << 20
	for _, c := range []struct {
		name   string
		make   func(int, int64) (Collective, error)
		ranks  int
		rounds int
		most   int64 // that a rank sends
	}{
		{"ring", Ring, 128, 254, 2 * 127 * bytes / 128},
		{"halving", HalvingDoubling, 128, 14, 2 * 127 * bytes / 128},
		{"halving", HalvingDoubling, 100, 14, 2*63*bytes/64 + bytes},
		{"tree", Tree, 128, 14, 7 * bytes},
		{"tree", Tree, 100, 14, 7 * bytes},
	} {
		p, err := c.make(c.ranks, bytes)
		if err != nil {
			t.Fatal(err)
		}
		most := int64(0)
		for rank := range c.ranks {
			sum := int64(0)
			for round := range p.Rounds() {
				sum += p.Step(rank, round).Send.Bytes
			}
			most = max(most, sum)
		}
		if p.Rounds() != c.rounds || most != c.most {
			t.Errorf("%s of %d: %d rounds, at most %d bytes a rank, want %d, %d", c.name, c.ranks, p.Rounds(), most, c.rounds, c.most)
		}
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	second := func(_ any, err error) error { return err }
	r := seeded(1)
	good := Load{Hosts: 2, Sizes: Hadoop, Rate: 1e9, Load: 500_000, Until: 1}
	with := func(f func(*Load)) error {
		l := good
		f(&l)
		return second(l.Stream(r))
	}
	for i, c := range []struct {
		err  error
		want string
	}{
		{with(func(l *Load) { l.Hosts = 1 }), "2 to"},
		{with(func(l *Load) { l.Sizes = nil }), "without sizes"},
		{with(func(l *Load) { l.Rate = 0 }), "0 bit/s"},
		{with(func(l *Load) { l.Load = -1 }), "load of -1"},
		{with(func(l *Load) { l.Until = -1 }), "until -1"},
		{with(func(l *Load) { l.Hosts, l.Rate, l.Load = 1<<20, 1e14, 1e9 }), "between arrivals"},
		{with(func(l *Load) { l.Rate, l.Load = 1, 1 }), "between arrivals"},
		{second(Bursts{Hosts: math.MaxInt, Senders: math.MaxInt - 1, Bytes: 1 << 40, Rate: 1, Load: 1}.Stream(r)), "2 to"},
		{second(Bursts{Hosts: 4, Senders: 4, Bytes: 1, Rate: 1e9, Load: 1}.Stream(r)), "4 senders"},
		{second(Bursts{Hosts: 1 << 20, Senders: 1 << 19, Bytes: 1 << 40, Rate: 1e9, Load: 1}.Stream(r)), "at a time"},
		{second(ByName("web")), `"web"`},
		{second(NewSizes("x", Point{10, 5000})), "end at 5000"},
		{second(NewSizes("x")), "end at 0"},
		{second(NewSizes("x", Point{10, 5000}, Point{10, 10000})), "point 1"},
		{second(NewSizes("x", Point{10, 5000}, Point{11, 4000})), "point 1"},
		{second(NewSizes("x", Point{10, 10001})), "point 0"},
		{second(Fixed(0)), "0 bytes"},
		{second(Permutation(r, 1, 1)), "2 to"},
		{second(Permutation(r, 2, 0)), "0 bytes"},
		{second(PermutationAcross(r, 6, 4, 1)), "groups of 4"},
		{second(PermutationAcross(r, 4, 4, 1)), "groups of 4"},
		{second(PermutationAcross(r, 4, 0, 1)), "groups of 0"},
		{second(Incast(0, 1)), "2 to"},
		{second(AllToAll(5000, 1)), "5000 hosts"},
		{second(Ring(0, 1)), "0 ranks"},
		{second(Tree(1, 0)), "0 bytes"},
		{second(HalvingDoubling(1<<30, 1)), "ranks"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%d: got %v, want an error about %q", i, c.err, c.want)
		}
	}
}
