package topology

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
)

// Profile is what is known of a kind of switch: a plain value, to be changed
// where an experiment wants something else. Switch makes a network.Switch of
// it for a node, because thresholds and headrooms depend on the rates and the
// cables of its ports.
type Profile struct {
	Name string
	// Shared is the buffer that all ports share; reserves and headrooms are
	// beside it. Where it is 0, Buffer is all that there is, and they are
	// taken out of it.
	Shared, Buffer int64
	Classes        [network.NumClasses]network.Class
	DSCP           []uint8 // the class of each DSCP, 64
	// RoCE and CNP are the DSCPs by which packets get into the classes that
	// are meant for data and for congestion notifications.
	RoCE, CNP uint8
	// REDRate is the port rate for which RED of Classes is meant. At other
	// ports thresholds grow with the rate. 0: they are the same everywhere.
	REDRate int64
	// AlphaByRate raises Alpha by one, up to 0, for each time that a port
	// is twice as fast as the hosts' ports are.
	AlphaByRate bool
	// Headrooms are those of lossless classes; each row is for ports of up
	// to Rate with cables of up to Delay. The first that fits is taken.
	Headrooms []Headroom
	// HeadroomDelays is the headroom in units of rate * delay, where there
	// are no rows. In any case it is at least network.Headroom, because
	// with less a lossless class loses packets.
	HeadroomDelays int64
}

// Headroom is a row of a look-up table.
type Headroom struct {
	Cable
	Bytes int64
}

// Lossy returns the profile without lossless classes: nothing is paused, and
// full queues drop. SONiC and Onyx call a class so configured lossy, too.
func (p Profile) Lossy() Profile {
	for i := range p.Classes {
		p.Classes[i].Lossless = false
	}
	p.Name += ", lossy"
	return p
}

// Marking returns the profile with other RED thresholds in all classes that
// mark, the same at all ports. Pmax is in parts of 10^6; Kmax = 0 marks
// nothing.
func (p Profile) Marking(red network.RED) Profile {
	for i := range p.Classes {
		if p.Classes[i].RED != (network.RED{}) {
			p.Classes[i].RED = red
		}
	}
	p.REDRate = 0
	return p
}

// The lengths of cables in look-up tables, as delays: 5 ns a metre.
const (
	metre   = 5_000 // picoseconds
	cable5  = 5 * metre
	cable40 = 40 * metre
	cable3h = 300 * metre
)

func headrooms(delay int64, bytes ...int64) []Headroom {
	var rows []Headroom
	for i, rate := range []int64{10, 25, 40, 50, 100} {
		rows = append(rows, Headroom{Cable{Rate: rate * Gbps, Delay: delay}, bytes[i]})
	}
	return rows
}

func concat(lists ...[]Headroom) (all []Headroom) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// byPriority returns a map of DSCPs whose upper three bits are the priority,
// by the class of each priority.
func byPriority(classes [8]uint8) []uint8 {
	m := make([]uint8, 64)
	for d := range m {
		m[d] = classes[d/8]
	}
	return m
}

// Spectrum is an NVIDIA Spectrum switch (SN2700) with its RoCE configuration,
// lossless mode.
//
// From the documentation of Cumulus Linux 5 ("RDMA over Converged Ethernet")
// and Onyx 3.10 ("show roce"): DSCP is trusted; priority 3 (DSCP 24 to 31,
// data) has class 3, priority 6 (DSCP 48 to 55, CNPs) class 6, all others
// class 0; class 6 is strict, 3 and 0 share by 50 %; class 3 marks from
// 150,000 to 1,500,000 bytes with a probability of 100 %; PFC on priority 3.
//
// From SONiC (sonic-buildimage, device/mellanox/x86_64-mlnx_msn2700-r0):
// ingress pool of 6,687,744 bytes (Mellanox-SN2700-D48C8, buffers_defaults_t0,
// before the headroom became a pool); alpha 2^0 for lossless groups, 2^3 for
// others, 2^3 for queues that drop; xon 19,456 and xoff by rate and cable
// (ACS-MSN2700/pg_profile_lookup.ini). A group keeps 19,456 bytes before it
// pauses, and resumes at the same level.
func Spectrum() Profile {
	p := Profile{
		Name:   "spectrum",
		Shared: 6_687_744,
		DSCP:   byPriority([8]uint8{3: 3, 6: 6}),
		RoCE:   26, CNP: 48,
		Headrooms: concat(
			headrooms(cable5, 29_696, 29_696, 29_696, 29_696, 30_720),
			headrooms(cable40, 29_696, 31_744, 32_768, 33_792, 38_912),
			headrooms(cable3h, 36_864, 48_128, 59_392, 66_560, 104_448),
		),
	}
	for i := range p.Classes {
		p.Classes[i] = network.Class{Alpha: 3, EgressAlpha: 3, Weight: 1}
	}
	p.Classes[0].Weight = 50
	p.Classes[3] = network.Class{
		Lossless: true, Reserve: 19_456, Weight: 50, EgressAlpha: 3,
		RED: network.RED{Kmin: 150_000, Kmax: 1_500_000, Pmax: 1_000_000},
	}
	p.Classes[6].Strict = true
	return p
}

// Arista7060CX is an Arista 7060CX-32S (Broadcom Tomahawk) as SONiC
// configures it (sonic-buildimage, device/arista/x86_64-arista_7060_cx32s):
// ingress pool of 10,875,072 bytes (Arista-7060CX-32S-C32,
// buffers_defaults_t1); groups 3 and 4 lossless, with alpha 2^-3 and xon_offset
// 2288 (the first pg_profile_lookup.ini, sonic-buildimage pull request 170;
// later ones have 2^0), 1248 bytes each, xoff by rate and cable
// (Arista-7060CX-32S-Q32/pg_profile_lookup.ini); others alpha 2^3; DSCP 3 and
// 4 in classes 3 and 4, DSCP 8 in 1, all others in 0; DWRR weights 30, 20, 25,
// 25 of classes 0, 1, 3, 4; marks at 184,320 bytes: green_min_threshold and
// green_max_threshold of WRED_PROFILE are the same
// (Arista-7060CX-32S-D48C8/qos.json). That map has no class for CNPs.
func Arista7060CX() Profile {
	dscp := make([]uint8, 64)
	dscp[3], dscp[4], dscp[8] = 3, 4, 1
	p := Profile{
		Name:   "7060cx",
		Shared: 10_875_072,
		DSCP:   dscp,
		RoCE:   3, CNP: 48,
		Headrooms: concat(
			headrooms(cable5, 35_776, 53_248, 66_560, 90_272, 165_568),
			headrooms(cable40, 37_024, 53_248, 71_552, 96_096, 177_632),
			headrooms(cable3h, 46_176, 79_040, 108_160, 141_856, 268_736),
		),
	}
	step := network.RED{Kmin: 184_320, Kmax: 184_320, Pmax: 1_000_000}
	for i := range p.Classes {
		p.Classes[i] = network.Class{Alpha: 3, EgressAlpha: 3, Weight: 1}
	}
	for class, weight := range map[int]uint16{0: 30, 1: 20} {
		p.Classes[class].Weight, p.Classes[class].RED = weight, step
	}
	for _, class := range []int{3, 4} {
		p.Classes[class] = network.Class{
			Lossless: true, Reserve: 1248, Alpha: -3, XONOffset: 2288, EgressAlpha: 3, Weight: 25, RED: step,
		}
	}
	return p
}

// HPCCSim is the switch of the HPCC paper's simulator
// (alibaba-edu/High-Precision-Congestion-Control at 9f4be2a), for hosts of a
// rate. From run.py: a buffer of 16 MB * Gb/s / 50, marks from 100 KB to 400
// KB * Gb/s / 25 with 20 %. From switch-mmu.cc and third.cc: 4 KB of each
// ingress port, XON 3 KB below the threshold, alpha 2^-3 and twice as much for
// each doubling of a port's rate over the hosts', headroom 3 * rate * delay.
// ACKs and CNPs have a strict class there; it is 6 here, by DSCP 48 to 55.
func HPCCSim(hostRate int64) Profile {
	p := Profile{
		Name:   "hpcc-sim",
		Buffer: (16 << 20) * (hostRate / 1_000_000) / 50_000,
		DSCP:   byPriority([8]uint8{0, 1, 2, 3, 4, 5, 6, 7}),
		RoCE:   26, CNP: 48,
		REDRate:        25 * Gbps,
		AlphaByRate:    true,
		HeadroomDelays: 3,
	}
	for i := range p.Classes {
		p.Classes[i] = network.Class{Alpha: -3, EgressAlpha: 3}
	}
	p.Classes[3] = network.Class{
		Lossless: true, Reserve: 4 << 10, Alpha: -3, XONOffset: 3 << 10, EgressAlpha: 3,
		RED: network.RED{Kmin: 100_000, Kmax: 400_000, Pmax: 200_000},
	}
	p.Classes[6].Strict = true
	return p
}

// DCQCN is the switch of the DCQCN paper (Zhu et al., SIGCOMM 2015, sections
// 4 and 5): Trident II with 12 MB; marks from 5 KB to 200 KB with 1 %;
// thresholds of beta/8 of the free buffer with beta = 8, so alpha is 2^0; XON
// two packets below. Its headroom of 22.4 KB is for its cables: here it is
// what network.Headroom says.
func DCQCN() Profile {
	p := Profile{
		Name:   "dcqcn-paper",
		Buffer: 12_000_000,
		DSCP:   byPriority([8]uint8{0, 1, 2, 3, 4, 5, 6, 7}),
		RoCE:   26, CNP: 48,
	}
	for i := range p.Classes {
		p.Classes[i] = network.Class{Alpha: -3, EgressAlpha: 3}
	}
	p.Classes[3] = network.Class{
		Lossless: true, XONOffset: 2 * (1024 + 100), EgressAlpha: 3,
		RED: network.RED{Kmin: 5000, Kmax: 200_000, Pmax: 10_000},
	}
	p.Classes[6].Strict = true
	return p
}

// Profiles returns the profiles, for hosts of a rate in bits per second.
func Profiles(hostRate int64) []Profile {
	return []Profile{Spectrum(), Arista7060CX(), HPCCSim(hostRate), DCQCN()}
}

// ProfileByName returns a profile, for hosts of a rate in bits per second. Of
// another name there is an error, with those that there are.
func ProfileByName(name string, hostRate int64) (Profile, error) {
	var names string
	for _, p := range Profiles(hostRate) {
		if p.Name == name {
			return p, nil
		}
		names += " " + p.Name
	}
	return Profile{}, fmt.Errorf("topology: no profile %q of a switch; there are%s", name, names)
}

// Switch returns the profile as a switch of a network, with the ports that a
// node of g has. mtu is network.Config.MTU: the headroom depends on it.
func (p Profile) Switch(g *Graph, node int32, mtu int) network.Switch {
	s := network.Switch{Buffer: p.Buffer, DSCP: p.DSCP}
	ports := make([][network.NumClasses]network.Class, len(g.Ports(node)))
	differ := false
	aside := int64(0)
	for i, port := range g.Ports(node) {
		ports[i] = p.at(g.links[port.Link].Cable, g.HostRate(), mtu)
		differ = differ || ports[i] != ports[0]
		for _, c := range ports[i] {
			aside += c.Reserve
			if c.Lossless {
				aside += c.Headroom + int64(mtu)
			}
		}
	}
	if len(ports) > 0 {
		s.Classes = ports[0]
	}
	if differ {
		s.Ports = ports
	}
	if p.Shared > 0 {
		s.Buffer = p.Shared + aside
	}
	return s
}

// at returns the classes at a port.
func (p Profile) at(c Cable, hostRate int64, mtu int) [network.NumClasses]network.Class {
	classes := p.Classes
	for i := range classes {
		k := &classes[i]
		if p.REDRate > 0 {
			k.RED.Kmin = scale(k.RED.Kmin, c.Rate, p.REDRate)
			k.RED.Kmax = scale(k.RED.Kmax, c.Rate, p.REDRate)
		}
		if p.AlphaByRate {
			for rate := c.Rate; rate > hostRate && k.Alpha < 0; rate /= 2 {
				k.Alpha++
			}
		}
		if k.Lossless {
			k.Headroom = max(p.headroom(c), network.Headroom(c.Rate, event.Time(c.Delay), mtu))
		} else {
			k.Headroom = 0
		}
	}
	return classes
}

// scale returns n * rate / of, or as much as fits.
func scale(n, rate, of int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(rate))
	if hi >= uint64(of) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(of))
	return int64(min(q, math.MaxInt64))
}

// headroom returns what the profile says, or 0.
func (p Profile) headroom(c Cable) int64 {
	for _, row := range p.Headrooms {
		if c.Rate <= row.Rate && c.Delay <= row.Delay {
			return row.Bytes
		}
	}
	const bitTime = 8_000_000_000_000 // bits per byte * picoseconds per second
	return p.HeadroomDelays * scale(c.Rate, c.Delay, bitTime)
}
