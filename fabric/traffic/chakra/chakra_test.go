package chakra

import (
	"bytes"
	"compress/gzip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// writer writes traces by the numbers of et_def.proto.
type writer struct{ b []byte }

func newTrace(version string) *writer {
	w := &writer{}
	w.message(protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), version))
	return w
}

func (w *writer) message(m []byte) { w.b = protowire.AppendBytes(w.b, m) }

func number(m []byte, num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(m, num, protowire.VarintType), v)
}

func content(m []byte, num protowire.Number, b string) []byte {
	return protowire.AppendString(protowire.AppendTag(m, num, protowire.BytesType), b)
}

// attribute returns an AttributeProto with a value in a field of the oneof.
func attribute(name string, num protowire.Number, v uint64) string {
	return string(number(content(nil, 1, name), num, v))
}

func node(id uint64, name string, kind uint64, deps ...uint64) []byte {
	m := number(nil, 1, id)
	m = content(m, 2, name)
	m = number(m, 3, kind)
	if len(deps) > 0 { // the first is a control dependency, the others are packed
		m = number(m, 4, deps[0])
		var packed []byte
		for _, d := range deps[1:] {
			packed = protowire.AppendVarint(packed, d)
		}
		m = content(m, 5, string(packed))
	}
	return m
}

func TestRead(t *testing.T) {
	t.Parallel()
	w := newTrace("0.0.4")
	w.message(content(node(1, "pg", 1), 8, string(content(nil, 1, `["[{\"pg_name\": \"7\", \"ranks\": [2, 0]}, {\"pg_name\": \"8\", \"ranks\": []}]"]`))))
	w.message(content(number(node(5, "matmul", 4, 1), 7, 250), 10, attribute("is_cpu_op", 27, 1)))
	m := node(9, "all-reduce", 7, 5, 1, 5)
	m = content(m, 10, attribute("comm_size", 9, 4096))
	m = content(m, 10, attribute("comm_type", 17, 14)) // 7, as a sint64
	m = content(m, 10, string(content(content(nil, 1, "pg_name"), 29, "7")))
	m = content(m, 10, string(content(content(nil, 1, "involved_dim"), 28, string(content(nil, 1, "\x01\x00")))))
	m = protowire.AppendFixed64(protowire.AppendTag(m, 99, protowire.Fixed64Type), 1) // of a later schema
	w.message(m)
	m = node(10, "send", 5, 9)
	m = content(m, 10, attribute("comm_size", 13, 77))
	m = content(m, 10, attribute("comm_dst", 7, 3))
	m = content(m, 10, attribute("comm_tag", 11, 4))
	w.message(m)
	w.message(content(node(11, "recv", 6), 10, attribute("comm_src", 7, 0)))
	w.message(node(12, "load", 2))
	want := &Trace{Version: "0.0.4", Nodes: []Node{
		{ID: 1, Name: "pg", Src: -1, Dst: -1},
		{ID: 5, Name: "matmul", Kind: Compute, Deps: []int32{0}, Micros: 250, CPU: true, Src: -1, Dst: -1},
		{ID: 9, Name: "all-reduce", Kind: Collective, Deps: []int32{0, 1}, Bytes: 4096, Collective: ReduceScatter, Group: "7", Some: true, Src: -1, Dst: -1},
		{ID: 10, Name: "send", Kind: Send, Deps: []int32{2}, Bytes: 77, Src: -1, Dst: 3, Tag: 4},
		{ID: 11, Name: "recv", Kind: Recv, Src: 0, Dst: -1},
		{ID: 12, Name: "load", Kind: Compute, Src: -1, Dst: -1},
	}, Groups: []Group{{"7", []int32{2, 0}}, {"8", []int32{}}}}
	var z bytes.Buffer
	zw := gzip.NewWriter(&z)
	_, _ = zw.Write(w.b)
	_ = zw.Close()
	text := Pack([][]byte{w.b, z.Bytes()})
	files, err := Unpack(text, Limits{})
	if err != nil || len(files) != 2 || !bytes.Equal(files[0], w.b) {
		t.Fatalf("%d files, %v", len(files), err)
	}
	got, err := Read(files, Limits{})
	if err != nil || len(got) != 2 {
		t.Fatalf("%d traces, %v", len(got), err)
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], want) {
			t.Errorf("%+v\nwant\n%+v", got[i], want)
		}
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	with := func(nodes ...[]byte) []byte {
		w := newTrace("v")
		for _, n := range nodes {
			w.message(n)
		}
		return w.b
	}
	many := make([]uint64, 100)
	for want, b := range map[string][]byte{
		"rank 0: there is no node in it":                      newTrace("v").b,
		"rank 0: byte 3: a message is cut off":                append(newTrace("").b, 200),
		"byte 0: a trace begins with its metadata":            protowire.AppendBytes(nil, number(nil, 1, 5)),
		"byte 4: node 1: ":                                    with(append(number(nil, 1, 1), 0x1a, 0xff)),
		"byte 4: node 1 has type 8: there are 0 to 7":         with(node(1, "x", 8)),
		`node 1, "y", has the number of "x"`:                  with(node(1, "x", 4), node(1, "y", 4)),
		`node 1, "x", waits for node 9, which is not there`:   with(node(1, "x", 4, 9)),
		`node 1, "x", waits for itself, by way of others`:     with(node(1, "x", 4, 2), node(2, "y", 4, 1), node(3, "z", 4, 2)),
		`node 2, "x", waits for itself`:                       with(node(1, "y", 4), node(2, "x", 4, 2)),
		"node 1: its comm_type is no collective: there are 0": with(content(node(1, "x", 7), 10, attribute("comm_type", 9, 10))),
		"node 1: comm_dst is -1: it is a rank, from 0 on":     with(content(node(1, "x", 5), 10, attribute("comm_dst", 7, 1<<64-1))),
		"there are too many nodes, with those of other":       with(node(1, "x", 4), node(2, "x", 4), node(3, "x", 4), node(4, "x", 4), node(5, "x", 4)),
		"node 1: there are too many dependencies":             with(node(1, "x", 4, many...)),
		"with those before it, it is too long":                with(node(1, strings.Repeat("x", 10000), 4)),
		"gzip: invalid header":                                {0x1f, 0x8b, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9},
		"node 1: ":                                            with(content(node(1, "x", 4), 10, "\xff")),
	} {
		if _, err := Read([][]byte{b}, Limits{Nodes: 4, Bytes: 5000}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", b[:min(len(b), 40)], err, want)
		}
	}
	good := with(node(1, "x", 4), node(2, "x", 4), node(3, "x", 4))
	if _, err := Read([][]byte{good, good}, Limits{Nodes: 4}); err == nil || !strings.Contains(err.Error(), "rank 1: byte") {
		t.Errorf("the nodes of all ranks are not counted together: %v", err)
	}
	for text, want := range map[string]string{
		"":                                  "no text that traces were packed into",
		"x!":                                "no text that traces were packed into",
		Pack([][]byte{good})[:9]:            "no text that traces",
		Pack([][]byte{good})[:40]:           "damaged",
		Pack([][]byte{make([]byte, 99999)}): "longer than",
	} {
		if _, err := Unpack(text, Limits{Bytes: 5000}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v; want %q", text, err, want)
		}
	}
}

// Whatever a trace has, it is read or refused, and what is read fits together.
func FuzzRead(f *testing.F) {
	w := newTrace("v")
	w.message(node(1, "a", 4))
	w.message(content(node(2, "b", 7, 1), 10, attribute("comm_size", 9, 100)))
	f.Add(w.b)
	f.Fuzz(func(t *testing.T, b []byte) {
		l := Limits{Bytes: 1 << 20, Nodes: 1000}
		traces, err := Read([][]byte{b}, l)
		if err == nil {
			tr := traces[0]
			if len(tr.Nodes) == 0 || len(tr.Nodes) > l.Nodes {
				t.Errorf("%d nodes", len(tr.Nodes))
			}
			for i := range tr.Nodes {
				n := &tr.Nodes[i]
				if !slices.IsSorted(n.Deps) || len(n.Deps) > 0 && (n.Deps[0] < 0 || int(n.Deps[len(n.Deps)-1]) >= len(tr.Nodes)) {
					t.Errorf("node %d depends on %v", i, n.Deps)
				}
				if n.Kind > Collective || n.Collective >= numCollectives || n.Src < -1 || n.Dst < -1 || n.Root < 0 {
					t.Errorf("node %d is %+v", i, n)
				}
			}
		}
		if files, err := Unpack(string(b), l); err == nil {
			for _, f := range files {
				if int64(len(f)) > l.Bytes {
					t.Error("a file is too long")
				}
			}
		}
		if files, err := Unpack(Pack([][]byte{b, b}), Limits{}); err != nil || len(files) != 2 || !bytes.Equal(files[1], b) {
			t.Errorf("%v", err)
		}
	})
}
