package sims

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/gosoftroce/rocev2/fabric/traffic"
)

// All of these networks have cables of 100 Gb/s with 1 µs, switches that take
// no time, and packets with 4096 bytes of data.
const (
	mtu = 4096
	mib = 1 << 20
	kib = 1 << 10
)

// Workload is traffic on a fat tree, and what plays it.
type Workload struct {
	Name, What string
	ports      int // of a switch of the fat tree, which has ports^3/4 hosts
	flows      pattern
	pauses     pauses
	players    []player
}

// pauses says when switches pause.
type pauses int

const (
	early pauses = iota // 15 packets of a port are stored, as in htsim
	never               // the buffer holds all
)

// player is one simulator, or one way in which it plays.
type player struct {
	name string
	kind kind
}

type kind int

const (
	ours      kind = iota // as the product's adapters are
	oursSpray             // switches spray, and do not pause
	htsimRoCE             // ECMP
	htsimNDP              // sprays, switches trim
	htsimEQDS             // the same
)

var (
	ecmp  = []player{{"ours", ours}, {"htsim RoCE", htsimRoCE}}
	spray = []player{{"ours", oursSpray}, {"htsim NDP", htsimNDP}, {"htsim EQDS", htsimEQDS}}
)

// Workloads are all that are played beside htsim.
func Workloads() []Workload {
	return []Workload{
		{"flow", "one flow of 2 MiB, 128 hosts, 5 switches on its way", 8, single(2 * mib), early, ecmp},
		{"incast-16", "16 hosts send 1 MiB each to one, of 128", 8, incast(16, mib), early, ecmp},
		{"incast-64", "64 hosts send 1 MiB each to one, of 128", 8, incast(64, mib), early, ecmp},
		{"permutation-128", "each of 128 hosts sends 2 MiB to another", 8, permutation(2 * mib), early, ecmp},
		{"permutation-1024", "each of 1024 hosts sends 2 MiB to another", 16, permutation(2 * mib), early, ecmp},
		{"permutation-8192", "each of 8192 hosts sends 64 KiB to another", 32, permutation(64 * kib), early, ecmp},
		{"all-to-all-128", "each of 128 hosts sends 64 KiB to each, all at once", 8, allToAll(64 * kib), early, ecmp},
		{"all-to-all-128-deep", "the same; no switch ever pauses", 8, allToAll(64 * kib), never, ecmp},
		{"spray-128", "each of 128 hosts sends 2 MiB to another; switches spray, and do not pause", 8, permutation(2 * mib), early, spray},
	}
}

// Hosts returns how many there are.
func (w *Workload) Hosts() int { return w.ports * w.ports * w.ports / 4 }

// pattern returns the flows among that many hosts.
type pattern func(r traffic.Source, hosts int) ([]traffic.Flow, error)

func single(bytes int64) pattern {
	return func(_ traffic.Source, hosts int) ([]traffic.Flow, error) {
		return []traffic.Flow{{Bytes: bytes, Src: 0, Dst: int32(hosts - 1)}}, nil
	}
}

// incast has the senders all over the network.
func incast(senders int, bytes int64) pattern {
	return func(_ traffic.Source, hosts int) ([]traffic.Flow, error) {
		flows := make([]traffic.Flow, senders)
		for i := range flows {
			flows[i] = traffic.Flow{Bytes: bytes, Src: int32(1 + i*(hosts-1)/senders)}
		}
		return flows, nil
	}
}

func permutation(bytes int64) pattern {
	return func(r traffic.Source, hosts int) ([]traffic.Flow, error) {
		return traffic.Permutation(r, hosts, bytes)
	}
}

func allToAll(bytes int64) pattern {
	return func(_ traffic.Source, hosts int) ([]traffic.Flow, error) {
		return traffic.AllToAll(hosts, bytes)
	}
}

// topology writes the file of the fat tree, which both simulators read.
func (w *Workload) topology() string {
	half := w.ports / 2
	var b strings.Builder
	fmt.Fprintf(&b, "Nodes %d\nTiers 3\nPodsize %d\n", w.Hosts(), half*half)
	for tier, down := range []int{half, half, w.ports} {
		fmt.Fprintf(&b, "\nTier %d\nDownlink_speed_Gbps 100\nDownlink_Latency_ns 1000\nSwitch_Latency_ns 0\nRadix_Down %d\n", tier, down)
		if tier < 2 {
			fmt.Fprintf(&b, "Radix_Up %d\nOversubscribed 1\n", half)
		}
		if tier > 0 {
			fmt.Fprint(&b, "Bundle 1\n")
		}
	}
	return b.String()
}

// matrix writes flows as htsim's connection matrix, which both read.
func matrix(hosts int, flows []traffic.Flow) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Nodes %d\nConnections %d\n", hosts, len(flows))
	for _, f := range flows {
		fmt.Fprintf(&b, "%d->%d start 0 size %d\n", f.Src, f.Dst, f.Bytes)
	}
	return b.String()
}

// dataHops returns packets of data times the switches on their ways.
func (w *Workload) dataHops(flows []traffic.Flow) (n int64) {
	half := int32(w.ports / 2)
	for _, f := range flows {
		switches := int64(5)
		if f.Src/half == f.Dst/half {
			switches = 1
		} else if f.Src/(half*half) == f.Dst/(half*half) {
			switches = 3
		}
		n += switches * ((f.Bytes + mtu - 1) / mtu)
	}
	return n
}

// source returns the random numbers of a seed.
func source(seed uint64) traffic.Source { return rand.New(rand.NewPCG(seed, 0)) }
