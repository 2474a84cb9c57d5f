package cc

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Law names congestion control, as programs and people choose it.
type Law uint8

// The laws.
const (
	LawWindow       Law = iota // a Window
	LawStatic                  // a Static
	LawDCQCN                   // DCQCN around a Window, with the parameters of the paper
	LawDCQCNAdapter            // DCQCN around a Window, with the parameters of adapters
	LawDCQCNHost               // DCQCN around a Window, with parameters for packets that pass operating systems
	LawHPCC                    // an HPCC: for networks whose switches tell of their queues, which are simulated
	LawSwift                   // a Swift
	LawTimely                  // a Timely around a Window
)

var lawNames = [...]string{"window", "static", "dcqcn", "dcqcn-adapter", "dcqcn-host", "hpcc", "swift", "timely"}

// String returns the name.
func (l Law) String() string {
	if int(l) < len(lawNames) {
		return lawNames[l]
	}
	return "law " + strconv.Itoa(int(l))
}

// Notify returns what the parameters of a law count on at the other end: the
// least time between two notifications, 0 if they count on none, and whether a
// mark within it is reported after it (qp.Config.NotifyHold).
func (l Law) Notify() (every time.Duration, hold bool) {
	switch l {
	case LawDCQCN:
		return 50 * time.Microsecond, true
	case LawDCQCNAdapter:
		return 4 * time.Microsecond, false // MIN_TIME_BETWEEN_CNPS of mlxconfig
	}
	return 0, false
}

// Choice is a law with what is different from its parameters. A number that is
// 0 is what is usual for the law. Rates are in bits per second.
type Choice struct {
	Law Law

	// Of LawStatic.
	Bytes int // the window; 0 means as many bytes as may be in flight

	// Of DCQCN, see Profile. HPCC and TIMELY have Line and Burst, too, and
	// TIMELY Min and Additive.
	Line, Min, Additive, Hyper uint64
	Burst                      int

	// Of the others. What of them is named above is not looked at here.
	HPCC   HPCCConfig
	Swift  SwiftConfig
	Timely TimelyConfig
}

// ErrChoice is wrapped by the errors about a Choice.
var ErrChoice = errors.New("bad choice of congestion control")

// Profile returns the parameters of DCQCN that c stands for. The error says
// what is wrong.
func (c *Choice) Profile() (*Profile, error) {
	p := PaperProfile(c.Line)
	switch c.Law {
	case LawDCQCNAdapter:
		p = AdapterProfile(c.Line)
	case LawDCQCNHost:
		p = HostProfile(c.Line)
	}
	p.Min, p.Additive, p.Hyper = min(p.Min, p.Line), min(p.Additive, p.Line), min(p.Hyper, p.Line)
	for _, f := range []struct {
		given uint64
		field *uint64
	}{{c.Min, &p.Min}, {c.Additive, &p.Additive}, {c.Hyper, &p.Hyper}} {
		if f.given != 0 {
			*f.field = f.given
		}
	}
	if c.Burst != 0 {
		p.Burst = c.Burst
	}
	for _, o := range []struct {
		name             string
		got, least, most uint64
		why              string
	}{
		{"line", p.Line, kilo, mostRate, ""},
		{"min", p.Min, kilo, p.Line, ", which is line"},
		{"ai", p.Additive, 1, p.Line, ", which is line"},
		{"hai", p.Hyper, 0, p.Line, ", which is line"},
	} {
		if o.got < o.least || o.got > o.most {
			return nil, fmt.Errorf("%w: %s is %d, in bits per second: it takes %d to %d%s", ErrChoice, o.name, o.got, o.least, o.most, o.why)
		}
	}
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrChoice, err)
	}
	return &p, nil
}

// Parameters returns HPCC, Swift and Timely with what is named beside them.
// The error says what is wrong with those of the law.
func (c *Choice) Parameters() (HPCCConfig, SwiftConfig, TimelyConfig, error) {
	h, s, t := c.HPCC, c.Swift, c.Timely
	h.Line, h.Burst = c.Line, c.Burst
	t.Line, t.Min, t.Additive, t.Burst = c.Line, c.Min, c.Additive, c.Burst
	var err error
	switch c.Law {
	case LawHPCC:
		err = h.Check()
	case LawSwift:
		err = s.Check()
	case LawTimely:
		err = t.Check()
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrChoice, err)
	}
	return h, s, t, err
}

// ErrNoTelemetry is wrapped by what Maker returns for LawHPCC.
var ErrNoTelemetry = errors.New("no network tells sockets of its queues (INT), which hpcc needs: it is for simulated networks, rocev2 sim")

// hostTime is what round trips are measured by where packets pass operating
// systems, which answer at times that differ by as much: the target of Swift,
// and of TIMELY below what the rate grows, and what the gradient is divided by.
// The literature's are of adapters, some ten microseconds.
const hostTime = time.Millisecond

// Maker returns what makes the controllers of c, for hosts on which packets
// pass an operating system: nil for LawWindow, which a queue pair has in any
// case. The error says what is wrong.
func (c *Choice) Maker() (func(Config) Controller, error) {
	_, swift, timely, err := c.Parameters()
	if err != nil {
		return nil, err
	}
	switch c.Law {
	case LawWindow:
		return nil, nil
	case LawStatic:
		if c.Bytes < 0 {
			return nil, fmt.Errorf("%w: a window of %d bytes", ErrChoice, c.Bytes)
		}
		bytes := c.Bytes
		return func(w Config) Controller { return NewStatic(bytes, w) }, nil
	case LawDCQCN, LawDCQCNAdapter, LawDCQCNHost:
		p, err := c.Profile()
		if err != nil {
			return nil, err
		}
		return func(w Config) Controller { return NewDCQCN(NewWindow(w), p) }, nil
	case LawHPCC:
		return nil, fmt.Errorf("%w: %w", ErrChoice, ErrNoTelemetry)
	case LawSwift:
		swift.Target = cmp.Or(swift.Target, hostTime)
		return func(w Config) Controller { return NewSwift(swift, w) }, nil
	case LawTimely:
		timely.Low = cmp.Or(timely.Low, hostTime)
		timely.RTT = cmp.Or(timely.RTT, hostTime)
		if err := timely.Check(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrChoice, err)
		}
		return func(w Config) Controller { return NewTimely(NewWindow(w), timely) }, nil
	}
	return nil, fmt.Errorf("%w: there is no %v", ErrChoice, c.Law)
}

// ParseChoice reads the text form of a Choice: the name of the law, and after
// commas what is different, such as
//
//	window
//	static,bytes=120K
//	dcqcn,line=1G,ai=1M,hai=5M,min=1M,burst=16K
//	dcqcn-adapter,line=100G
//	dcqcn-host,line=1G
//	hpcc,line=100G,rtt=13us,eta=95,stages=5,wai=80
//	swift,target=1ms,hop=10us,hops=3,range=5ms
//	timely,line=1G,ai=1M,min=10M,low=500us,high=5ms,rtt=200us
//
// Rates are in bits per second with k, M or G for 10^3, 10^6 and 10^9, bytes
// with K or M for 2^10 and 2^20, and times as time.ParseDuration has them. eta
// is in percent.
func ParseChoice(text string) (c Choice, err error) {
	name, rest, more := strings.Cut(text, ",")
	law := slices.Index(lawNames[:], name)
	if law < 0 {
		return c, fmt.Errorf("%w: %q is none of %s", ErrChoice, name, strings.Join(lawNames[:], ", "))
	}
	c.Law = Law(law)
	var seen []string
	for more {
		var option string
		option, rest, more = strings.Cut(rest, ",")
		key, value, _ := strings.Cut(option, "=")
		err := c.set(key, value)
		if slices.Contains(seen, key) {
			err = fmt.Errorf("%s is there twice", key)
		}
		if err != nil {
			return c, fmt.Errorf("%w: %q in %q: %w", ErrChoice, option, text, err)
		}
		seen = append(seen, key)
	}
	if c.Law == LawHPCC {
		_, _, _, err = c.Parameters()
		return c, err
	}
	_, err = c.Maker()
	return c, err
}

// CheckHosts says what is wrong with the text form of a Choice for hosts on
// which packets pass an operating system.
func CheckHosts(text string) error {
	c, err := ParseChoice(text)
	if err == nil {
		_, err = c.Maker()
	}
	return err
}

// option is a parameter that the text form names. It is in one of these, by
// what it is.
type option struct {
	name  string
	rate  *uint64
	bytes *int
	count *int // 0 is none
	time  *time.Duration
}

// options returns what the text form of the law may name, and the law's name in
// messages.
func (c *Choice) options() (law string, list []option) {
	line, least, burst := option{name: "line", rate: &c.Line}, option{name: "min", rate: &c.Min}, option{name: "burst", bytes: &c.Burst}
	additive := option{name: "ai", rate: &c.Additive}
	switch c.Law {
	case LawStatic:
		return "a static window", []option{{name: "bytes", bytes: &c.Bytes}}
	case LawDCQCN, LawDCQCNAdapter, LawDCQCNHost:
		return "DCQCN", []option{line, least, additive, {name: "hai", rate: &c.Hyper}, burst}
	case LawHPCC:
		return "HPCC", []option{line, {name: "rtt", time: &c.HPCC.RTT}, {name: "eta", count: &c.HPCC.Eta}, {name: "stages", count: &c.HPCC.Stages},
			{name: "wai", bytes: &c.HPCC.Additive}, burst}
	case LawSwift:
		return "Swift", []option{{name: "target", time: &c.Swift.Target}, {name: "hop", time: &c.Swift.Hop}, {name: "hops", count: &c.Swift.Hops},
			{name: "range", time: &c.Swift.Range}}
	case LawTimely:
		return "TIMELY", []option{line, least, additive, {name: "low", time: &c.Timely.Low}, {name: "high", time: &c.Timely.High},
			{name: "rtt", time: &c.Timely.RTT}, burst}
	}
	return c.Law.String(), nil
}

// set takes one option.
func (c *Choice) set(key, value string) (err error) {
	law, list := c.options()
	var names []string
	for _, o := range list {
		names = append(names, o.name)
		switch {
		case o.name != key:
			continue
		case o.rate != nil:
			*o.rate, err = parseRate(value)
		case o.bytes != nil:
			*o.bytes, err = parseBytes(value)
		case o.count != nil:
			*o.count, err = parseCount(value)
		default:
			*o.time, err = parseTime(value)
		}
		return err
	}
	switch len(names) {
	case 0:
		return fmt.Errorf("%s has no options", law)
	case 1:
		return fmt.Errorf("the option of %s is %s", law, names[0])
	}
	last := len(names) - 1
	return fmt.Errorf("the options of %s are %s and %s", law, strings.Join(names[:last], ", "), names[last])
}

// parseCount reads a number. 0 is none, which in a Choice is negative.
func parseCount(value string) (int, error) {
	n, err := strconv.ParseUint(value, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number, 0 to 65535", value)
	}
	if n == 0 {
		return -1, nil
	}
	return int(n), nil
}

func parseTime(value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 || d > 10*time.Second {
		return 0, fmt.Errorf("%q is not a time: a number with ns, us, ms or s, up to 10s, such as 50us", value)
	}
	return d, nil
}

func parseRate(value string) (uint64, error) {
	n, ok := parseUnits(value, map[byte]uint64{'k': kilo, 'M': mega, 'G': giga}, mostRate)
	if !ok {
		return 0, fmt.Errorf("%q is not a rate: a whole number of bits per second, or of k, M or G of them, up to %dG, such as 25G", value, mostRate/giga)
	}
	return n, nil
}

func parseBytes(value string) (int, error) {
	n, ok := parseUnits(value, map[byte]uint64{'K': 1 << 10, 'M': 1 << 20}, mostBytes)
	if !ok {
		return 0, fmt.Errorf("%q is not a size: a whole number of bytes, or of K or M of them, up to %dM, such as 64K", value, mostBytes>>20)
	}
	return int(n), nil
}

const mostBytes = 1 << 30 // of a window and of a burst

// parseUnits reads a number, 1 to most, with a letter for a unit after it, or
// none, and reports whether it is one.
func parseUnits(value string, units map[byte]uint64, most uint64) (n uint64, ok bool) {
	digits, unit := value, uint64(1)
	if n := len(value) - 1; n > 0 && units[value[n]] != 0 {
		digits, unit = value[:n], units[value[n]]
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n == 0 || n > most/unit {
		return 0, false
	}
	return n * unit, true
}
