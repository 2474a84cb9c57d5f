package cc

import (
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
)

var lawNames = [...]string{"window", "static", "dcqcn", "dcqcn-adapter", "dcqcn-host"}

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

	// Of DCQCN, see Profile.
	Line, Min, Additive, Hyper uint64
	Burst                      int
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

// Maker returns what makes the controllers of c: nil for LawWindow, which a
// queue pair has in any case. The error says what is wrong.
func (c *Choice) Maker() (func(Config) Controller, error) {
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
//
// Rates are in bits per second with k, M or G for 10^3, 10^6 and 10^9, and
// bytes with K or M for 2^10 and 2^20.
func ParseChoice(text string) (c Choice, err error) {
	name, rest, more := strings.Cut(text, ",")
	law := -1
	for i, n := range lawNames {
		if n == name {
			law = i
		}
	}
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
	_, err = c.Maker()
	return c, err
}

// set takes one option.
func (c *Choice) set(key, value string) (err error) {
	rated := c.Law >= LawDCQCN
	rates := map[string]*uint64{"line": &c.Line, "min": &c.Min, "ai": &c.Additive, "hai": &c.Hyper}
	switch {
	case rated && rates[key] != nil:
		*rates[key], err = parseRate(value)
	case rated && key == "burst":
		c.Burst, err = parseBytes(value)
	case c.Law == LawStatic && key == "bytes":
		c.Bytes, err = parseBytes(value)
	case rated:
		err = errors.New("the options of DCQCN are line, min, ai, hai and burst")
	case c.Law == LawStatic:
		err = errors.New("the option of a static window is bytes")
	default:
		err = fmt.Errorf("%v has no options", c.Law)
	}
	return err
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
