package grid

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/faces"
	"github.com/gosoftroce/rocev2/bench/internal/ours"
	"github.com/gosoftroce/rocev2/transport/owner"
)

// OwnerPrefix begins the names of the cells of a port that several processes
// share, each beside what has its port alone.
const OwnerPrefix = "owner/"

// manyPrograms share an address, each with one queue pair.
const manyPrograms = 64

// owned are processes that share the port of an address.
func owned(o Options) []cell.Cell {
	g := newGroup(o, "owner: two programs")
	two := func(test string, size int, unit string) {
		field := map[string]string{cell.Gbps: "gbps", cell.MsgRate: "mpps", cell.Micros: "lat_us_p50"}[unit]
		name, what := OwnerPrefix+"perf/"+test+"/"+cell.Bytes(size), "rocev2 perf "+test+" of "+cell.Bytes(size)
		g.peer(name, Tool, what+", two addresses", unit, size, faces.Perf(g.o.A, g.o.B, test, size, field))
		g.peer(name+"/one", Tool, what+", one address", unit, size, shared(faces.Perf(g.o.A, g.o.A, test, size, field), g.o.A))
		g.peer(name+"/owners", Tool, what+", two addresses with an owner each", unit, size, shared(faces.Perf(g.o.A, g.o.B, test, size, field), g.o.A, g.o.B))
	}
	two("write_bw", mib, cell.Gbps)
	two("write_bw", 8, cell.MsgRate)
	two("send_lat", 8, cell.Micros)

	g.name = "owner: many programs"
	many := func(size, depth, burst int, unit string) {
		value := map[string]string{cell.Gbps: "gbps", cell.MsgRate: "mmsg"}[unit]
		c := ours.Config{Test: ours.Stream, Op: "write", Size: size, QPs: manyPrograms, Depth: depth, Burst: burst, MTU: 4096}
		addrs := ours.Addrs{A: g.o.A, B: g.o.B}
		name, what := OwnerPrefix+"many/write/"+cell.Bytes(size), fmt.Sprintf("RDMA WRITE of %s, %d outstanding, ", cell.Bytes(size), depth)
		add := func(name, what string, run runFunc) {
			g.add(cell.Cell{Name: name, Stack: Rocev2, What: what, Unit: unit, Op: c.Op, Size: size, QPs: c.QPs, Depth: depth, MTU: c.MTU}, run)
		}
		add(name, fmt.Sprintf("%s%d queue pairs of one process", what, c.QPs), ours.Runner(addrs, c, value))
		add(name+"/processes", fmt.Sprintf("%s%d processes on one address with one each", what, c.QPs), shared(ours.ManyRunner(addrs, c, value), g.o.B))
	}
	many(64<<10, 2*manyPrograms, 1, cell.Gbps)
	many(8, rateDepth, rateDepth/manyPrograms, cell.MsgRate)

	g.name = "owner: connections"
	for _, c := range []struct {
		name, what, unit, value string
		test                    faces.Test
	}{
		{"cm/dial", "connections made and closed one after the other, cm", cell.PerSecond, "per_second", faces.Connect},
		{"cm/dial-to-message", "from Dial to the answer of a first message, cm", cell.Micros, "p50_us", faces.First},
	} {
		f := faces.Config{Test: c.test, Face: faces.CM}
		g.peer(OwnerPrefix+c.name, Rocev2, c.what, c.unit, 0, faces.Runner(g.o.A, g.o.B, f, c.value))
		g.peer(OwnerPrefix+c.name+"/owners", Rocev2, c.what+", both ports with an owner", c.unit, 0, shared(faces.Runner(g.o.A, g.o.B, f, c.value), g.o.A, g.o.B))
	}
	return g.cells
}

// shared returns run with the ports of addresses owned by this process
// meanwhile, so that the devices of run are leaseholders.
func shared(run runFunc, addrs ...string) runFunc {
	return func(ctx context.Context, w cell.Window) (s cell.Sample) {
		for _, a := range addrs {
			addr, err := netip.ParseAddr(a)
			if err != nil {
				return cell.Failed(err)
			}
			o, err := owner.Listen(owner.Config{Addr: addr})
			if err != nil {
				return cell.Failed(err)
			}
			before := o.Stats()
			defer func() {
				after := o.Stats()
				if after.Granted == before.Granted && s.OK() {
					s = cell.Failed(errors.New("no process has a lease: an owner of another kind was found first"))
				}
				if err := o.Close(); err != nil && s.OK() {
					s = cell.Failed(err)
				}
			}()
		}
		return run(ctx, w)
	}
}
