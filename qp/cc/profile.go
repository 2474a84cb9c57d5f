package cc

import (
	"errors"
	"fmt"
	"time"
)

// Profile has the parameters of DCQCN: the algorithm is one, but what the paper
// publishes and what adapters ship with differ by orders of magnitude. Rates
// are in bits per second on the wire, see WireOverhead.
type Profile struct {
	Line uint64 // rate of the own port, where a connection begins; nothing is paced up to the first notification
	Min  uint64 // no cut goes below it

	// Alpha estimates how much congestion there is, 0 to 1. It grows by
	// alpha = alpha * G/1024 + (1024-G)/1024, and decays by alpha = alpha *
	// G/1024.
	G            uint32
	InitialAlpha uint32 // of 1024, at the first notification
	// AlphaPeriod is after which time without a notification alpha decays,
	// and again each time (the paper). It grows at once with each one. With
	// Sampled it is looked at once in a period instead (adapters): it grows
	// if any notification came in that, and else decays.
	AlphaPeriod time.Duration
	Sampled     bool

	// A notification cuts the rate by the part alpha/2^Shift, at most by
	// MaxCut percent. There is one cut in CutPeriod: another notification
	// within it takes effect at its end. 0 means that each one cuts.
	Shift     uint8
	MaxCut    uint32
	CutPeriod time.Duration

	// ClampTarget makes the rate before a cut the target of the way back
	// each time (the paper). Without it, only if the rate was increased
	// since the last cut.
	ClampTarget bool

	// The rate increases each IncreasePeriod since the last cut, and each
	// IncreaseBytes sent since then (0: never). Stages of both kinds are
	// counted. While both counts are below Threshold the rate goes half of
	// the way to the target (fast recovery). Then the target grows by
	// Additive each time, and the rate follows it in the same way. With
	// both counts above Threshold it grows by Hyper, as many times as the
	// lower count is above it.
	IncreasePeriod time.Duration
	IncreaseBytes  uint64
	Threshold      uint32
	Additive       uint64
	Hyper          uint64

	// Burst is how many bytes may go at once, see Rate.Set; 0 means 64 KiB.
	// It is never more than the rate gives in a millisecond.
	// With 1 packets are spaced one by one. That is what adapters do, and
	// for timers that are exact, as in a simulation. In an operating system
	// a timer is late by some ten microseconds, and what is saved up
	// meanwhile is what a burst may hold.
	Burst int
}

const (
	kilo, mega, giga = 1_000, 1_000_000, 1_000_000_000

	// defaultLine is where a connection begins whose port's rate is not
	// known. Notifications bring it down to what there is within some
	// hundred microseconds.
	defaultLine = 100 * giga

	socketBurst = 64 << 10 // a segmentation run
)

// PaperProfile returns the parameters of the paper (Zhu et al., "Congestion
// Control for Large-Scale RDMA Deployments", SIGCOMM 2015), for a port of that
// rate; 0 means 100 Gb/s. They were chosen for 40 Gb/s, for switches that mark
// from 5 KB to 200 KB with up to 1 %, and for one notification in 50 µs: a peer
// that sends more of them achieves no more. The hyper increase and the least
// rate are those of the authors' simulator.
func PaperProfile(line uint64) Profile {
	return Profile{
		Line: lineOr(line), Min: 100 * mega,
		G: 1020, InitialAlpha: 1024, AlphaPeriod: 55 * time.Microsecond,
		Shift: 1, MaxCut: 50, CutPeriod: 50 * time.Microsecond, ClampTarget: true,
		IncreasePeriod: 55 * time.Microsecond, IncreaseBytes: 10 * mega, Threshold: 5, Additive: 40 * mega, Hyper: 200 * mega,
	}
}

// AdapterProfile returns the parameters with which NVIDIA's adapters ship (from
// ConnectX-4 on; "DCQCN Parameters", DOC-2790, and the defaults of mlxconfig),
// for a port of that rate; 0 means 100 Gb/s. They are for one notification in 4
// µs of each port.
func AdapterProfile(line uint64) Profile {
	return Profile{
		Line: lineOr(line), Min: mega,
		G: 1019, InitialAlpha: 1023, AlphaPeriod: time.Microsecond, Sampled: true,
		Shift: 1, MaxCut: 50, CutPeriod: 4 * time.Microsecond,
		IncreasePeriod: 300 * time.Microsecond, IncreaseBytes: 32767 * 64, Threshold: 1, Additive: 5 * mega, Hyper: 50 * mega,
	}
}

// HostProfile returns parameters for hosts on which packets pass an operating
// system, for a port of that rate; 0 means 100 Gb/s. There a notification comes
// about a millisecond after its mark, and one for a whole burst: with the
// timers of the paper the rate is back before the next one, however long the
// queue is. These are the paper's with twenty times as much time for
// everything, and rates that are the same parts of the line as those are of 20
// Gb/s.
func HostProfile(line uint64) Profile {
	const slower = 20
	p := PaperProfile(line)
	p.AlphaPeriod *= slower
	p.IncreasePeriod *= slower
	p.CutPeriod = slower * 50 * time.Microsecond
	p.IncreaseBytes = max(p.Line/100, 1) // what the line carries in 80 ms
	p.Min, p.Additive, p.Hyper = max(p.Line/200, kilo), max(p.Line/500, 1), max(p.Line/100, 1)
	return p
}

func lineOr(line uint64) uint64 {
	if line == 0 {
		return defaultLine
	}
	return line
}

// ErrProfile is wrapped by the errors of Profile.Check.
var ErrProfile = errors.New("cc: bad parameter of DCQCN")

// most are bounds beyond which the arithmetic would not hold.
const (
	mostRate   = 1 << 44 // 17 Tb/s
	mostPeriod = time.Hour
)

// Check says which parameter is out of its range.
func (p *Profile) Check() error {
	for _, c := range []struct {
		name             string
		got, least, most uint64
	}{
		{"Line", p.Line, kilo, mostRate},
		{"Min", p.Min, kilo, p.Line},
		{"G", uint64(p.G), 1, 1023},
		{"InitialAlpha", uint64(p.InitialAlpha), 1, 1024},
		{"AlphaPeriod", uint64(p.AlphaPeriod), 1, uint64(mostPeriod)},
		{"Shift", uint64(p.Shift), 0, 10},
		{"MaxCut", uint64(p.MaxCut), 1, 100},
		{"CutPeriod", uint64(p.CutPeriod), 0, uint64(mostPeriod)},
		{"IncreasePeriod", uint64(p.IncreasePeriod), 1, uint64(mostPeriod)},
		{"Threshold", uint64(p.Threshold), 1, 1 << 20},
		{"Additive", p.Additive, 1, p.Line},
		{"Hyper", p.Hyper, 0, p.Line},
		{"Burst", uint64(p.Burst), 0, 1 << 30},
	} {
		if c.got < c.least || c.got > c.most {
			return fmt.Errorf("%w: %s is %d, not %d to %d", ErrProfile, c.name, c.got, c.least, c.most)
		}
	}
	return nil
}
