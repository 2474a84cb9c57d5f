package lab

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gosoftroce/rocev2/fabric/traffic/chakra"
)

// tracer writes an execution trace.
type tracer struct{ b []byte }

func (w *tracer) message(m []byte) { w.b = protowire.AppendBytes(w.b, m) }

// Types of nodes, and collectives.
const (
	etMetadata, etCompute, etSend, etRecv, etCollective = 1, 4, 5, 6, 7

	etAllReduce, etReduce, etAllGather, etGather, etBroadcast, etAllToAll, etReduceScatter, etBarrier = 0, 1, 2, 3, 5, 6, 7, 9
)

func etNumber(m []byte, num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(m, num, protowire.VarintType), v)
}

func etText(m []byte, num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(m, num, protowire.BytesType), s)
}

// node adds a node. attrs are names and numbers, or names and texts.
func (w *tracer) node(id uint64, kind, micros uint64, deps []uint64, attrs ...any) *tracer {
	if w.b == nil {
		w.message(etText(nil, 1, "0.0.4"))
	}
	m := etNumber(etText(etNumber(nil, 1, id), 2, fmt.Sprintf("n%d", id)), 3, kind)
	for _, d := range deps {
		m = etNumber(m, 5, d)
	}
	m = etNumber(m, 7, micros)
	for i := 0; i < len(attrs); i += 2 {
		a := etText(nil, 1, attrs[i].(string))
		switch v := attrs[i+1].(type) {
		case int:
			a = etNumber(a, 9, uint64(v))
		case bool:
			a = etNumber(a, 27, protowire.EncodeBool(v))
		case []byte:
			a = etText(a, 28, string(etText(nil, 1, string(v))))
		case string:
			a = etText(a, 29, v)
		}
		m = etText(m, 10, string(a))
	}
	w.message(m)
	return w
}

func packed(traces ...*tracer) string {
	var files [][]byte
	for _, t := range traces {
		files = append(files, t.b)
	}
	return chakra.Pack(files)
}

func executed(t *testing.T, hosts int, tr Traffic, traces ...*tracer) *Result {
	t.Helper()
	tr.Kind, tr.List = "chakra", packed(traces...)
	return play(t, Scenario{Network: Network{Topology: "star", Hosts: hosts}, Traffic: []Traffic{tr}})
}

// A collective of a trace is the same collective of a scenario, packet by
// packet, with the sizes of ASTRA-sim.
func TestTracesPlayCollectives(t *testing.T) {
	t.Parallel()
	const ranks, size = 4, 100_000
	for _, c := range []struct {
		kind  int
		as    Traffic
		bytes Bytes
	}{
		{etAllReduce, Traffic{Kind: "ring"}, size}, {etAllGather, Traffic{Kind: "all-gather"}, ranks * size}, {etReduceScatter, Traffic{Kind: "reduce-scatter"}, size},
		{etAllToAll, Traffic{Kind: "pairwise"}, size}, {etBroadcast, Traffic{Kind: "broadcast"}, size},
		{etAllReduce, Traffic{Kind: "halving"}, size}, {etAllReduce, Traffic{Kind: "tree"}, size}, {etAllReduce, Traffic{Kind: "hierarchical", Group: 2}, size},
	} {
		var all []*tracer
		for range ranks {
			all = append(all, new(tracer).node(3, etCollective, 0, nil, "comm_type", c.kind, "comm_size", size, "involved_dim", []byte{1, 1}))
		}
		tr := Traffic{Algorithm: c.as.Kind, Group: c.as.Group}
		if c.kind != etAllReduce {
			tr.Algorithm = ""
		}
		got := executed(t, ranks, tr, all...)
		c.as.Bytes = c.bytes
		want := play(t, Scenario{Network: Network{Topology: "star", Hosts: ranks}, Traffic: []Traffic{c.as}})
		if got.Totals.Sent != want.Totals.Sent || got.Stats.RxBytes != want.Stats.RxBytes || got.Flows[0].End != want.Flows[0].End || got.Flows[0].Bytes != int64(got.Stats.RxBytes) {
			t.Errorf("%s: it ends at %v, and without a trace at %v", c.as.Kind, got.Flows[0].End, want.Flows[0].End)
		}
	}
}

// Nodes begin when those that they depend on are over; a processor and an
// accelerator compute one node at a time each.
func TestTracesKeepDependencies(t *testing.T) {
	t.Parallel()
	a := new(tracer).node(9, etCompute, 100, nil). // its number is no order
							node(1, etCompute, 50, nil).                    // after 9, as there is one accelerator
							node(2, etCompute, 70, nil, "is_cpu_op", true). // beside them
							node(3, etSend, 0, []uint64{1, 2}, "comm_dst", 1, "comm_size", 1000, "comm_tag", 5).
							node(4, etRecv, 0, nil, "comm_src", 1, "comm_size", 1000).
							node(5, etCompute, 0, []uint64{4}).
							node(6, etMetadata, 0, []uint64{5})
	b := new(tracer).node(1, etRecv, 0, nil, "comm_src", 0, "comm_size", 1000, "comm_tag", 5).
		node(2, etCompute, 200, []uint64{1}).
		node(3, etSend, 0, []uint64{2}, "comm_dst", 0, "comm_size", 1000)
	r := executed(t, 2, Traffic{}, a, b)
	// 150 us, a message, 200 us, a message; each some 4.5 us.
	if end := r.Flows[0].End; end < 354*us || end > 362*us {
		t.Errorf("it ends at %v", end)
	}
	if r.Flows[0].Bytes != 2000 {
		t.Errorf("it has %d bytes", r.Flows[0].Bytes)
	}
}

// Messages of one tag come in the order of the traces, those of others and of
// collectives of several groups do not meet them, in any number of parts.
func TestTracesOfGroups(t *testing.T) {
	t.Parallel()
	const ranks = 8
	pg := `["[{\"pg_name\": \"even\", \"ranks\": [0, 2, 4, 6]}, {\"pg_name\": \"odd\", \"ranks\": [7, 5, 3, 1]}]"]`
	var all []*tracer
	for rank := range uint64(ranks) {
		w := new(tracer)
		w.node(0, etCompute, rank, nil)
		meta := etText(etNumber(etNumber(nil, 1, 1), 3, etMetadata), 8, string(etText(nil, 1, pg)))
		w.message(meta)
		name := []string{"even", "odd"}[rank%2]
		w.node(2, etCollective, 0, []uint64{0}, "pg_name", name, "comm_type", etAllReduce, "comm_size", 50_000)
		w.node(3, etCollective, 0, []uint64{0}, "comm_type", etAllToAll, "comm_size", 20_000)
		w.node(4, etCollective, 0, []uint64{2}, "pg_name", name, "comm_type", etBroadcast, "comm_size", 9999, "root_rank", int(4+rank%2))
		w.node(5, etCollective, 0, []uint64{3, 4}, "comm_type", etBarrier)
		w.node(6, etCollective, 0, []uint64{5}, "pg_name", "left", "comm_type", etReduce, "comm_size", 1000, "root_rank", int(rank/4*4))
		w.node(7, etCollective, 0, []uint64{5}, "pg_name", "me", "comm_type", etAllReduce, "comm_size", 1000)
		for k := range uint64(5) {
			w.node(100+k, etSend, 0, []uint64{5}, "comm_dst", int((rank+1)%ranks), "comm_size", int(1000*k), "comm_tag", int(k%2))
			w.node(200+k, etRecv, 0, []uint64{5}, "comm_src", int((rank+ranks-1)%ranks), "comm_size", int(1000*k), "comm_tag", int(k%2))
		}
		all = append(all, w)
	}
	s := Scenario{Network: Network{Topology: "leaf-spine", Leaves: 4, Spines: 2, HostsPerLeaf: 4}, Traffic: []Traffic{{
		Kind: "chakra", Hosts: "1-15/2", Groups: `{"left": [0, 1, 2, 3], "me": [0]}`, Tenant: Tenant{QueuePairs: 2},
	}}}
	// Ranks that are in no group of a name do not use it.
	for rank := range all {
		if rank >= 4 {
			all[rank] = without(all[rank], 6)
		}
		if rank != 0 {
			all[rank] = without(all[rank], 7)
		}
	}
	s.Traffic[0].List = packed(all...)
	want := play(t, s)
	for _, cores := range []int{2, 4} {
		s.Cores = cores
		if r := play(t, s); r.Digest != want.Digest {
			t.Errorf("in %d parts it is another run", cores)
		}
	}
	// Each rank: its share of all.
	bytes := uint64(2*(2*3*50_000) + 8*20_000*7/8 + 2*3*9999 + 3*1000 + 8*(0+1000+2000+3000+4000))
	if got := want.Stats.RxBytes; got != bytes {
		t.Errorf("%d bytes have arrived, and the traces have %d", got, bytes)
	}
}

// without returns a trace without a node.
func without(w *tracer, id uint64) *tracer {
	var left []byte
	for b := w.b; len(b) > 0; {
		m, n := protowire.ConsumeBytes(b)
		if num, typ, k := protowire.ConsumeTag(m); num != 1 || typ != protowire.VarintType || first(protowire.ConsumeVarint(m[k:])) != id {
			left = append(left, b[:n]...)
		}
		b = b[n:]
	}
	return &tracer{left}
}

func first[A, B any](a A, _ B) A { return a }

// What does not fit together is said, with the rank and the node.
func TestMistakesOfTraces(t *testing.T) {
	t.Parallel()
	send := func(attrs ...any) *tracer { return new(tracer).node(1, etSend, 0, nil, attrs...) }
	recv := func(attrs ...any) *tracer { return new(tracer).node(2, etRecv, 0, nil, attrs...) }
	coll := func(attrs ...any) *tracer { return new(tracer).node(1, etCollective, 0, nil, attrs...) }
	idle := func() *tracer { return new(tracer).node(1, etCompute, 1, nil) }
	for want, c := range map[string]struct {
		tr  Traffic
		all []*tracer
	}{
		"traces of 1 ranks: it takes 2 to 4":                                                    {Traffic{}, []*tracer{idle()}},
		"traces of 5 ranks":                                                                     {Traffic{}, []*tracer{idle(), idle(), idle(), idle(), idle()}},
		"traces of 3 ranks: it takes 2 to 2":                                                    {Traffic{Hosts: "0-1"}, []*tracer{idle(), idle(), idle()}},
		`rank 0, node 1, "n1": from rank 0 to rank 2: there are 0 to 1`:                         {Traffic{}, []*tracer{send("comm_dst", 2), idle()}},
		`from rank 0 to rank -1`:                                                                {Traffic{}, []*tracer{send(), idle()}},
		`from rank 0 to rank 0`:                                                                 {Traffic{}, []*tracer{send("comm_dst", 0), idle()}},
		`it is of rank 1, and in the trace of another one`:                                      {Traffic{}, []*tracer{send("comm_dst", 1, "comm_src", 1), idle()}},
		"rank 0 has 1 sends to rank 1 with tag 0, which has 0 receives":                         {Traffic{}, []*tracer{send("comm_dst", 1), idle()}},
		"rank 0 has 1 sends to rank 1 with tag 3, which has 0 receives":                         {Traffic{}, []*tracer{send("comm_dst", 1, "comm_tag", 3), recv("comm_src", 0, "comm_tag", 4)}},
		"it has 1073741825 bytes: at most 1GiB":                                                 {Traffic{}, []*tracer{send("comm_dst", 1, "comm_size", 1<<30+1), recv("comm_src", 0)}},
		`rank 1, node 1, "n1": rank 0 has no such collective of group ""`:                       {Traffic{}, []*tracer{idle(), coll()}},
		`rank 1 has 0 collectives of group "", and rank 0 has 1`:                                {Traffic{}, []*tracer{coll(), idle()}},
		`ALL_GATHER of 5 bytes; of rank 0 the same of group "" is ALL_REDUCE of`:                {Traffic{}, []*tracer{coll("comm_size", 5), coll("comm_size", 5, "comm_type", etAllGather)}},
		`GATHER is not supported`:                                                               {Traffic{}, []*tracer{coll("comm_type", etGather), idle()}},
		`group "x" is described nowhere: say with groups`:                                       {Traffic{}, []*tracer{coll("pg_name", "x"), idle()}},
		`the rank is not in group "x"`:                                                          {Traffic{Groups: `{"x": [1]}`}, []*tracer{coll("pg_name", "x"), idle()}},
		`groups: group "x" has rank 2: there are 0 to 1, each once`:                             {Traffic{Groups: `{"x": [1, 2]}`}, []*tracer{idle(), idle()}},
		`group "x" has rank 1: there are 0 to 1, each once`:                                     {Traffic{Groups: `{"x": [1, 1]}`}, []*tracer{idle(), idle()}},
		`groups is no list of the ranks`:                                                        {Traffic{Groups: `x`}, []*tracer{idle(), idle()}},
		`its root, rank 7, is not in the group`:                                                 {Traffic{}, []*tracer{coll("comm_type", etBroadcast, "root_rank", 7), idle()}},
		`its involved_dim leaves out a dimension`:                                               {Traffic{}, []*tracer{coll("involved_dim", []byte{1, 0}), idle()}},
		`group is 3: it is how many ranks a machine has`:                                        {Traffic{Algorithm: "hierarchical", Group: 3}, []*tracer{coll(), coll(), coll(), coll()}},
		`algorithm is "rings": there are ring, tree, halving, hierarchical (do you mean ring?)`: {Traffic{Algorithm: "rings"}, []*tracer{idle(), idle()}},
		`rank 0, node 1, "n1": it takes 18446744073709551615 us: at most`:                       {Traffic{}, []*tracer{new(tracer).node(1, etCompute, 1<<64-1, nil), idle()}},
	} {
		c.tr.Kind, c.tr.List = "chakra", packed(c.all...)
		s := Scenario{Network: Network{Topology: "star", Hosts: 4}, Traffic: []Traffic{c.tr}}
		if err := Check(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	for list, want := range map[string]string{"": "list has the traces, or file says where", "AAAA": "no text that traces were packed into"} {
		s := Scenario{Network: Network{Topology: "star", Hosts: 4}, Traffic: []Traffic{{Kind: "chakra", List: list}}}
		if err := Check(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// Where a rank hangs the result says: here two ranks each wait for the other's
// message first.
func TestTracesThatHang(t *testing.T) {
	t.Parallel()
	var all []*tracer
	for rank := range 2 {
		all = append(all, new(tracer).node(1, etRecv, 0, nil, "comm_src", 1-rank).node(2, etSend, 0, []uint64{1}, "comm_dst", 1-rank))
	}
	s := Scenario{Limit: 100 * us, Network: Network{Topology: "star"}, Traffic: []Traffic{{Kind: "chakra", List: packed(all...)}}}
	r, err := Run(t.Context(), s)
	if err == nil || len(r.Unfinished) != 1 {
		t.Fatalf("%v", err)
	}
	if where := r.Unfinished[0].Where; where != `2 of 2 ranks are not done; rank 0 has done 0 of 2 nodes, and is at node 1, "n1", which waits for rank 1` {
		t.Errorf("it is said: %s", where)
	}
	computes := []*tracer{new(tracer).node(1, etCompute, 1000, nil), new(tracer).node(1, etCompute, 1, nil)}
	s.Traffic[0].List = packed(computes...)
	r, err = Run(t.Context(), s)
	if err == nil || !slices.ContainsFunc(r.Unfinished, func(u Unfinished) bool {
		return strings.Contains(u.Where, "1 of 2 ranks are not done; rank 0 has done 0 of 1 nodes, and computes")
	}) {
		t.Errorf("%v", r.Unfinished)
	}
}
