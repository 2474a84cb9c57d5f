package chakra

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Read reads the traces of all ranks.
func Read(files [][]byte, l Limits) (traces []*Trace, err error) {
	l = l.withDefaults()
	for rank, b := range files {
		if b, err = plain(b, l.Bytes); err != nil {
			return nil, fmt.Errorf("chakra: trace of rank %d: %w", rank, err)
		}
		l.Bytes -= int64(len(b))
		r := reader{nodes: l.Nodes, index: map[uint64]int32{}}
		if err := r.read(b); err != nil {
			return nil, fmt.Errorf("chakra: trace of rank %d: %w", rank, err)
		}
		l.Nodes -= len(r.t.Nodes)
		traces = append(traces, &r.t)
	}
	return traces, nil
}

// plain returns a file that is not compressed.
func plain(b []byte, most int64) ([]byte, error) {
	if bytes.HasPrefix(b, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		if b, err = io.ReadAll(io.LimitReader(z, most+1)); err != nil {
			return nil, err
		}
	}
	if int64(len(b)) > most {
		return nil, errors.New("with those before it, it is too long")
	}
	return b, nil
}

// reader reads a trace.
type reader struct {
	t     Trace
	nodes int // that there may be
	deps  [][]uint64
	sum   int // of deps
	index map[uint64]int32
}

func (r *reader) read(b []byte) error {
	whole := len(b)
	for first := true; len(b) > 0; first = false {
		at := whole - len(b)
		m, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return fmt.Errorf("byte %d: a message is cut off, or has no length: %w", at, protowire.ParseError(n))
		}
		b = b[n:]
		var err error
		if first {
			err = r.metadata(m)
		} else {
			err = r.node(m)
		}
		if err != nil {
			return fmt.Errorf("byte %d: %w", at, err)
		}
	}
	if len(r.t.Nodes) == 0 {
		return errors.New("there is no node in it")
	}
	return r.resolve()
}

// fields calls f for each field of a message, with the number of a varint or
// the bytes of what has a length. Other types are left out.
func fields(m []byte, f func(num protowire.Number, v uint64, b []byte) error) error {
	for len(m) > 0 {
		num, typ, n := protowire.ConsumeTag(m)
		if n < 0 {
			return protowire.ParseError(n)
		}
		m = m[n:]
		var v uint64
		var b []byte
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(m)
		case protowire.BytesType:
			b, n = protowire.ConsumeBytes(m)
		case protowire.Fixed32Type:
			var w uint32
			w, n = protowire.ConsumeFixed32(m)
			v = uint64(w)
		case protowire.Fixed64Type:
			v, n = protowire.ConsumeFixed64(m)
		default:
			n = protowire.ConsumeFieldValue(num, typ, m)
			num = 0
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		m = m[n:]
		if num == 0 {
			continue
		}
		if err := f(num, v, b); err != nil {
			return err
		}
	}
	return nil
}

// metadata reads the GlobalMetadata that a trace begins with.
func (r *reader) metadata(m []byte) error {
	err := fields(m, func(num protowire.Number, _ uint64, b []byte) error {
		if num == 1 {
			if b == nil && len(m) > 0 {
				return errors.New("it is a number where a trace has the version of its schema")
			}
			r.t.Version = text(b)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("a trace begins with its metadata: %w", err)
	}
	return nil
}

// text returns a name of at most some bytes that can be printed.
func text(b []byte) string {
	const most = 100
	return strings.ToValidUTF8(string(b[:min(len(b), most)]), "?")
}

// Kinds by the numbers of NodeType: metadata, loads and stores of memory,
// computing, sends, receives and collectives.
var kinds = [...]Kind{Other, Other, Compute, Compute, Compute, Send, Recv, Collective}

// node reads a Node.
func (r *reader) node(m []byte) error {
	if len(r.t.Nodes) == r.nodes {
		return errors.New("there are too many nodes, with those of other traces")
	}
	n := Node{Src: -1, Dst: -1}
	var deps []uint64
	var inputs []byte
	kind := uint64(0)
	err := fields(m, func(num protowire.Number, v uint64, b []byte) (err error) {
		switch num {
		case 1:
			n.ID = v
		case 2:
			n.Name = text(b)
		case 3:
			kind = v
		case 4, 5:
			err = numbers(v, b, func(id uint64) error {
				if deps = append(deps, id); r.sum+len(deps) > mostDeps*r.nodes {
					return errors.New("there are too many dependencies")
				}
				return nil
			})
		case 7:
			n.Micros = v
		case 8:
			inputs = b
		case 10:
			err = n.attribute(b)
		}
		return err
	})
	r.sum += len(deps)
	switch {
	case err != nil:
		return fmt.Errorf("node %d: %w", n.ID, err)
	case kind >= uint64(len(kinds)):
		return fmt.Errorf("node %d has type %d: there are 0 to %d", n.ID, kind, len(kinds)-1)
	}
	if at, twice := r.index[n.ID]; twice {
		return fmt.Errorf("node %d, %q, has the number of %q", n.ID, n.Name, r.t.Nodes[at].Name)
	}
	switch n.Kind = kinds[kind]; {
	case n.Kind != Collective:
		n.Collective = 0
	case n.Collective == numCollectives:
		return fmt.Errorf("node %d: its comm_type is no collective: there are 0 to %d", n.ID, numCollectives-1)
	}
	if kind == 1 {
		r.t.Groups = append(r.t.Groups, groupsOf(inputs)...)
	}
	r.index[n.ID] = int32(len(r.t.Nodes))
	r.t.Nodes, r.deps = append(r.t.Nodes, n), append(r.deps, deps)
	return nil
}

// numbers calls f for repeated numbers: one, or some that are packed.
func numbers(v uint64, packed []byte, f func(uint64) error) error {
	if packed == nil {
		return f(v)
	}
	for len(packed) > 0 {
		v, n := protowire.ConsumeVarint(packed)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := f(v); err != nil {
			return err
		}
		packed = packed[n:]
	}
	return nil
}

// attribute takes an AttributeProto.
func (n *Node) attribute(m []byte) error {
	var name string
	var value uint64
	var content []byte
	err := fields(m, func(num protowire.Number, v uint64, b []byte) error {
		switch num {
		case 1:
			name = string(b)
		case 15, 17: // sint32, sint64
			value = uint64(protowire.DecodeZigZag(v))
		case 7, 9, 11, 13, 19, 21, 23, 25, 27: // numbers, and bool
			value = v
		case 28, 29: // list of bools, string
			content = b
		}
		return nil
	})
	switch name {
	case "is_cpu_op":
		n.CPU = value != 0
	case "comm_size":
		n.Bytes = value
	case "comm_src":
		n.Src, err = rank(name, value, err)
	case "comm_dst":
		n.Dst, err = rank(name, value, err)
	case "root_rank", "comm_root":
		n.Root, err = rank(name, value, err)
	case "comm_tag":
		n.Tag = uint32(value)
	case "comm_type": // of sends and receives it says nothing
		n.Collective = CollectiveKind(min(value, uint64(numCollectives)))
	case "pg_name":
		n.Group = text(content)
	case "involved_dim":
		e := fields(content, func(num protowire.Number, v uint64, b []byte) error {
			if num != 1 {
				return nil
			}
			return numbers(v, b, func(in uint64) error {
				n.Some = n.Some || in == 0
				return nil
			})
		})
		err = errors.Join(err, e)
	}
	return err
}

// rank returns a value as a rank.
func rank(name string, v uint64, err error) (int32, error) {
	if err == nil && v > math.MaxInt32 {
		err = fmt.Errorf("%s is %d: it is a rank, from 0 on", name, int64(v))
	}
	return int32(v), err
}

// groupsOf returns the process groups that PyTorch describes in the inputs of a
// node: JSON, as a string in a list. Of anything else there are none.
func groupsOf(inputs []byte) (all []Group) {
	var values string
	err := fields(inputs, func(num protowire.Number, _ uint64, b []byte) error {
		if num == 1 {
			values = string(b)
		}
		return nil
	})
	from, to := strings.Index(values, "[{"), strings.LastIndex(values, "}]")
	if err != nil || from < 0 || to < from {
		return nil
	}
	var list []struct {
		Name  string  `json:"pg_name"`
		Ranks []int32 `json:"ranks"`
	}
	if json.Unmarshal([]byte(strings.ReplaceAll(values[from:to+2], `\"`, `"`)), &list) != nil {
		return nil
	}
	for _, g := range list {
		all = append(all, Group{text([]byte(g.Name)), g.Ranks})
	}
	return all
}

// resolve makes indices of dependencies, and checks that they are no circle.
func (r *reader) resolve() error {
	nodes := r.t.Nodes
	left, after := make([]int32, len(nodes)), make([][]int32, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		for _, id := range r.deps[i] {
			at, ok := r.index[id]
			if !ok {
				return fmt.Errorf("node %d, %q, waits for node %d, which is not there", n.ID, n.Name, id)
			}
			n.Deps = append(n.Deps, at)
		}
		slices.Sort(n.Deps)
		n.Deps = slices.Compact(n.Deps)
		for _, at := range n.Deps {
			after[at] = append(after[at], int32(i))
		}
		left[i] = int32(len(n.Deps))
	}
	var ready []int32
	for i := range nodes {
		if left[i] == 0 {
			ready = append(ready, int32(i))
		}
	}
	for k := 0; k < len(ready); k++ {
		for _, next := range after[ready[k]] {
			if left[next]--; left[next] == 0 {
				ready = append(ready, next)
			}
		}
	}
	if len(ready) < len(nodes) {
		i := slices.IndexFunc(left, func(n int32) bool { return n > 0 })
		return fmt.Errorf("node %d, %q, waits for itself, by way of others", nodes[i].ID, nodes[i].Name)
	}
	return nil
}
