package traffic

import (
	"slices"
	"strings"
	"testing"
)

// carryOut plays a collective on vectors of small numbers, and returns what
// they are then. What is sent is of from, which may be the same vectors.
func carryOut(t *testing.T, name string, c Collective, from, to [][]int) {
	t.Helper()
	for round := range c.Rounds() {
		sent := make([][]int, c.Ranks())
		for i := range from {
			if s := c.Step(i, round); s.To >= 0 {
				sent[i] = slices.Clone(from[i][s.Send.Offset : s.Send.Offset+s.Send.Bytes])
			}
		}
		for i := range to {
			s := c.Step(i, round)
			if s.To >= 0 {
				if o := c.Step(int(s.To), round); o.From != int32(i) || o.Recv.Bytes != s.Send.Bytes {
					t.Fatalf("%s of %d: in round %d rank %d sends %+v, the other receives %+v", name, c.Ranks(), round, i, s, o)
				}
			}
			if s.From < 0 {
				continue
			}
			if o := c.Step(int(s.From), round); o.To != int32(i) {
				t.Fatalf("%s of %d: in round %d rank %d waits for rank %d, which sends to %d", name, c.Ranks(), round, i, s.From, o.To)
			}
			for j, v := range sent[s.From] {
				at := &to[i][s.Recv.Offset+int64(j)]
				if *at = v + *at; !s.Reduce {
					*at = v
				}
			}
		}
	}
}

// vectorsOf returns one for each rank, and their sum.
func vectorsOf(ranks int, bytes int64) (all [][]int, sum []int) {
	sum = make([]int, bytes)
	for i := range ranks {
		v := make([]int, bytes)
		for j := range v {
			v[j] = (i + 1) * (j + 3)
			sum[j] += v[j]
		}
		all = append(all, v)
	}
	return all, sum
}

// Every collective comes to what it says.
func TestCollectivesResult(t *testing.T) {
	t.Parallel()
	for ranks := 1; ranks <= 17; ranks++ {
		for _, bytes := range []int64{1, 5, 64, 100} {
			play := func(name string, c Collective, err error) (v [][]int, sum []int) {
				t.Helper()
				if err != nil || c.Ranks() != ranks {
					t.Fatalf("%s of %d: %v", name, ranks, err)
				}
				v, sum = vectorsOf(ranks, bytes)
				carryOut(t, name, c, v, v)
				return v, sum
			}
			part := func(v []int, i int) []int {
				s := plan{ranks, bytes}.spans(i, i+1, ranks)
				return v[s.Offset : s.Offset+s.Bytes]
			}
			before, _ := vectorsOf(ranks, bytes)

			c, err := AllGather(ranks, bytes)
			for i, v := range first(play("all-gather", c, err)) {
				for k := range ranks {
					if !slices.Equal(part(v, k), part(before[k], k)) {
						t.Fatalf("all-gather of %d: rank %d has another part %d", ranks, i, k)
					}
				}
			}
			c, err = ReduceScatter(ranks, bytes)
			v, sum := play("reduce-scatter", c, err)
			for i := range v {
				if k := (i + 1) % ranks; !slices.Equal(part(v[i], k), part(sum, k)) {
					t.Fatalf("reduce-scatter of %d: rank %d has another part %d", ranks, i, k)
				}
			}
			c, err = Broadcast(ranks, bytes)
			for i, v := range first(play("broadcast", c, err)) {
				if !slices.Equal(v, before[0]) {
					t.Fatalf("broadcast of %d: rank %d has something else", ranks, i)
				}
			}
			c, err = Reduce(ranks, bytes)
			if v, sum := play("reduce", c, err); !slices.Equal(v[0], sum) {
				t.Fatalf("reduce of %d: rank 0 has another sum", ranks)
			}
			for group := 1; group <= ranks; group++ {
				c, err := Hierarchical(ranks, group, bytes)
				if ranks%group != 0 {
					if err == nil {
						t.Fatalf("%d ranks in groups of %d", ranks, group)
					}
					continue
				}
				v, sum := play("hierarchical", c, err)
				for i := range v {
					if !slices.Equal(v[i], sum) {
						t.Fatalf("hierarchical of %d in groups of %d: rank %d has another sum", ranks, group, i)
					}
				}
			}
		}
	}
}

func first[A, B any](a A, _ B) A { return a }

// In an all-to-all each rank gets its part of all others.
func TestPairwise(t *testing.T) {
	t.Parallel()
	for ranks := 2; ranks <= 9; ranks++ {
		const bytes = 50
		c, err := Pairwise(ranks, bytes)
		if err != nil {
			t.Fatal(err)
		}
		from, _ := vectorsOf(ranks, bytes)
		got := map[int64]int64{} // bytes by sender and receiver
		for round := range c.Rounds() {
			for i := range ranks {
				s := c.Step(i, round)
				if o := c.Step(int(s.To), round); o.From != int32(i) {
					t.Fatalf("%d sends to %d, which waits for %d", i, s.To, o.From)
				}
				got[int64(i)<<32|int64(s.To)] += s.Send.Bytes
			}
		}
		for i := range ranks {
			for k := range ranks {
				want := plan{ranks, bytes}.spans(k, k+1, ranks).Bytes
				if i == k {
					want = 0
				}
				if got[int64(i)<<32|int64(k)] != want {
					t.Errorf("rank %d sends %d bytes to rank %d, of %d", i, got[int64(i)<<32|int64(k)], k, len(from))
				}
			}
		}
	}
	c, err := PairwiseOf([][]int64{{9, 0, 3}, {1, 9, 0}, {0, 0, 9}})
	if err != nil {
		t.Fatal(err)
	}
	sent := map[[2]int32]int64{}
	for round := range c.Rounds() {
		for i := range int32(3) {
			s := c.Step(int(i), round)
			if s.To >= 0 {
				sent[[2]int32{i, s.To}] += s.Send.Bytes
				if o := c.Step(int(s.To), round); o.From != i || o.Recv.Bytes != s.Send.Bytes {
					t.Errorf("%d to %d: %+v", i, s.To, o)
				}
			}
			if s.From >= 0 && c.Step(int(s.From), round).To != i {
				t.Errorf("rank %d waits for rank %d in vain", i, s.From)
			}
		}
	}
	if len(sent) != 2 || sent[[2]int32{0, 2}] != 3 || sent[[2]int32{1, 0}] != 1 {
		t.Errorf("%v", sent)
	}
	for _, wrong := range [][][]int64{{}, {{1, 2}}, {{0, -1}, {0, 0}}, {{0, 1 << 41}, {0, 0}}} {
		if _, err := PairwiseOf(wrong); err == nil || !strings.HasPrefix(err.Error(), "traffic: ") {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}

// After a barrier each rank depends on all others.
func TestBarrier(t *testing.T) {
	t.Parallel()
	for ranks := 1; ranks <= 33; ranks++ {
		c, err := Barrier(ranks)
		if err != nil {
			t.Fatal(err)
		}
		knows := make([]uint64, ranks)
		for i := range knows {
			knows[i] = 1 << i
		}
		for round := range c.Rounds() {
			before := slices.Clone(knows)
			for i := range knows {
				s := c.Step(i, round)
				if s.From == int32(i) || c.Step(int(s.From), round).To != int32(i) {
					t.Fatalf("%d ranks, round %d: rank %d waits for %d", ranks, round, i, s.From)
				}
				knows[i] |= before[s.From]
			}
		}
		for i, k := range knows {
			if k != 1<<ranks-1 {
				t.Errorf("%d ranks: rank %d knows of %b", ranks, i, k)
			}
		}
	}
}
