package lab

import (
	"fmt"
	"math"
	"math/big"
	"strings"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// Rate is a rate in bits per second. As text it has a unit: "100Gb/s".
type Rate int64

// Units of rates.
const (
	Mbps Rate = 1_000_000
	Gbps Rate = 1_000_000_000
)

// Bytes is a number of bytes. As text it may have a unit: "12MB" has powers of
// 1000, "12MiB" of 1024.
type Bytes int64

// Time is a point or a span of virtual time. As text it has a unit: "1.5us".
type Time event.Time

// Units of times.
const (
	Microsecond = Time(event.Microsecond)
	Millisecond = Time(event.Millisecond)
)

// unit is a name and how much it stands for.
type unit struct {
	name string
	of   int64
}

var (
	rates = []unit{{"Tb/s", 1e12}, {"Gb/s", 1e9}, {"Mb/s", 1e6}, {"kb/s", 1e3}, {"b/s", 1}}
	sizes = []unit{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3}, {"B", 1}}
	times = []unit{{"ms", 1e9}, {"us", 1e6}, {"µs", 1e6}, {"ns", 1e3}, {"ps", 1}, {"s", 1e12}}
)

// parse reads a number with one of the units, exactly.
func parse(text, what, example string, units []unit) (int64, error) {
	s := strings.TrimSpace(text)
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		number = strings.TrimSpace(number)
		if len(number) > 32 || strings.Trim(number, "+-.0123456789") != "" {
			break
		}
		r, ok := new(big.Rat).SetString(number)
		if !ok {
			break
		}
		r.Mul(r, new(big.Rat).SetInt64(u.of))
		if r.Sign() < 0 || !r.IsInt() || r.Cmp(new(big.Rat).SetInt64(math.MaxInt64/4)) > 0 {
			return 0, fmt.Errorf("%q is out of range, or too exact, for %s", text, what)
		}
		return r.Num().Int64(), nil
	}
	var names []string
	for _, u := range units {
		names = append(names, u.name)
	}
	return 0, fmt.Errorf("%q is no %s: it is written like %q, and units are %s", text, what, example, strings.Join(names, ", "))
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Rate) UnmarshalText(b []byte) (err error) {
	n, err := parse(string(b), "rate", "100Gb/s", rates)
	*r = Rate(n)
	return err
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *Bytes) UnmarshalText(b []byte) (err error) {
	v, err := parse(string(b), "number of bytes", "64KiB", sizes)
	*n = Bytes(v)
	return err
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Time) UnmarshalText(b []byte) (err error) {
	n, err := parse(string(b), "time", "20us", times)
	*t = Time(n)
	return err
}

func (r Rate) String() string  { return write(int64(r), rates[:4], "b/s") }
func (n Bytes) String() string { return write(int64(n), sizes[:3], "B") }
func (t Time) String() string {
	return write(int64(t), []unit{times[5], times[0], times[1], times[3]}, "ps")
}

// exact is a size, time or rate of a setting as a mistake tells it: all of it,
// where String would round it to what is allowed.
func exact(v any) any {
	switch v := v.(type) {
	case Rate:
		return whole(int64(v), v.String(), rates)
	case Bytes:
		return whole(int64(v), v.String(), sizes)
	case Time:
		return whole(int64(v), v.String(), times)
	}
	return v
}

// whole returns the text of a number, or if that is rounded, all of the number
// with the least unit.
func whole(n int64, text string, units []unit) string {
	if m, err := parse(text, "", "", units); n < 0 || err == nil && m == n {
		return text
	}
	for _, u := range units {
		if u.of == 1 {
			text = fmt.Sprint(n, u.name)
		}
	}
	return text
}

// write writes a number with the largest unit that it has one of, and at most
// three digits after the point.
func write(n int64, units []unit, least string) string {
	for _, u := range units {
		if n >= u.of {
			s := fmt.Sprintf("%d.%03d", n/u.of, n%u.of*1000/u.of)
			return strings.TrimRight(strings.TrimRight(s, "0"), ".") + u.name
		}
	}
	return fmt.Sprint(n, least)
}
