package lab

import (
	"fmt"
	"io"

	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/ib"
)

// Unfinished is a flow that had begun, and had not come to its end when the run
// ended early.
type Unfinished struct {
	*Flow
	Arrived int64  // bytes of its payload; -1: its connection has carried other flows, too
	Where   string // in words: what it waits for, and where
}

// pair is the hosts that a packet is from and to.
type pair struct{ src, dst uint16 }

// place is where packets of a pair of hosts are.
type place struct {
	node, port int
	queued     bool
	packets    int
}

// held has the places of all packets inside the network, by their hosts.
type held map[pair][]place

func (r *run) held() held {
	h := held{}
	r.net.Held(func(p network.Held) {
		key := pair{p.Packet.Src, p.Packet.Dst}
		list := h[key]
		for i := range list {
			if at := &list[i]; at.node == p.Node && at.port == p.Port && at.queued == p.Queued {
				at.packets++
				return
			}
		}
		h[key] = append(list, place{p.Node, p.Port, p.Queued, 1})
	})
	return h
}

// unfinished returns the flows that have begun and have an end, and are not at
// it.
func (r *run) unfinished() (list []Unfinished) {
	h := r.held()
	jobs := map[*Flow]*job{}
	for _, j := range r.jobs {
		jobs[j.flow] = j
	}
	for _, f := range r.flows {
		if f.Bytes == 0 || f.End != 0 {
			continue
		}
		u := Unfinished{Flow: f, Arrived: -1}
		switch j := jobs[f]; {
		case j != nil:
			u.Where = j.where(h)
		case f.op == opRead: // the data come the other way
			u.Where = r.where(h, f.Dst, f.Src)
		default:
			u.Where = r.where(h, f.Src, f.Dst)
		}
		if u.Where == "" {
			u.Where = f.waits()
		}
		if f.conns != nil && !r.s.Adapter.Shared || f.stream != nil {
			u.Arrived = int64(f.received())
		}
		list = append(list, u)
	}
	return list
}

// where says where what one host has for another one is, in a queue rather than
// on a cable.
func (r *run) where(h held, src, dst int) string {
	var at place
	for _, p := range h[pair{uint16(src), uint16(dst)}] {
		if at.packets == 0 || p.queued && !at.queued || p.queued == at.queued && p.packets > at.packets {
			at = p
		}
	}
	paused := func(node, port int) string {
		switch p := r.net.Port(node, port); {
		case p.Paused() == 0 && p.Held() != 0:
			return ", without credits"
		case p.Paused() == 0:
			return ""
		}
		return fmt.Sprintf(", which %s pauses", r.nameOf(int(r.g.Ports(int32(node))[port].Peer)))
	}
	switch first := paused(src, 0); {
	case at.queued:
		return fmt.Sprintf("%d packets wait in %s, port %d%s", at.packets, r.nameOf(at.node), at.port, paused(at.node, at.port))
	case first != "":
		return fmt.Sprintf("it waits in host %d%s", src, first)
	case at.packets > 0:
		return fmt.Sprintf("%d packets are on the cable from %s, port %d", at.packets, r.nameOf(at.node), at.port)
	case len(h[pair{uint16(dst), uint16(src)}]) > 0:
		return fmt.Sprintf("its answers are under way from host %d", dst)
	}
	return ""
}

// waits says of a flow that has nothing in the network what its host waits for.
func (f *Flow) waits() string {
	if f.stream != nil {
		return f.waitsTCP()
	}
	if f.conns == nil {
		return "nothing of it is in the network"
	}
	at := f.sending()
	if at.Rate > 0 {
		return fmt.Sprintf("nothing of it is in the network: host %d sends at %v, and waits for answers about %v", f.Src, Rate(at.Rate), Bytes(at.InFlight))
	}
	return fmt.Sprintf("nothing of it is in the network: host %d waits for answers about %v", f.Src, Bytes(at.InFlight))
}

// nameOf returns the name of a node.
func (r *run) nameOf(node int) string {
	if hosts := int(r.g.Hosts()); r.g.IsBond(int32(node)) {
		for _, p := range r.g.Ports(int32(node)) {
			if r.g.IsHost(p.Peer) {
				return fmt.Sprintf("the adapter of host %d", p.Peer)
			}
		}
	} else if node >= hosts {
		return fmt.Sprintf("switch %d", node-hosts)
	}
	return fmt.Sprintf("host %d", node)
}

// writeFailed writes the flows that have failed, the first of them.
func (r *Result) writeFailed(w io.Writer) {
	lines := 0
	for _, f := range r.Flows {
		if f.Status == ib.StatusSuccess {
			continue
		}
		if lines++; lines > mostLines {
			continue
		}
		at := ""
		if f.End > 0 {
			at = fmt.Sprintf("\tat %v", f.End)
		}
		fmt.Fprintf(w, "  host %d to %d\tfailed: %v%s\n", f.Src, f.Dst, f.Status, at)
	}
	if lines > mostLines {
		fmt.Fprintf(w, "  and %d more have failed\n", lines-mostLines)
	}
}

// writeUnfinished writes the flows that have not come to their end, the first
// of them.
func (r *Result) writeUnfinished(w io.Writer) {
	if len(r.Unfinished) == 0 {
		return
	}
	fmt.Fprintf(w, "unfinished\t%d flows\n", len(r.Unfinished))
	for i := range min(len(r.Unfinished), mostLines) {
		u := &r.Unfinished[i]
		arrived := fmt.Sprint(Bytes(u.Bytes))
		if u.Arrived >= 0 {
			arrived = fmt.Sprintf("%v of %v", Bytes(u.Arrived), Bytes(u.Bytes))
		}
		fmt.Fprintf(w, "  host %d to %d\t%s\tsince %v\t%s\n", u.Src, u.Dst, arrived, u.Start, u.Where)
	}
	if more := len(r.Unfinished) - mostLines; more > 0 {
		fmt.Fprintf(w, "  and %d more\n", more)
	}
}
