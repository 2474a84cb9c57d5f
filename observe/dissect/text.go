package dissect

import (
	"fmt"
	"strconv"
	"time"
)

func itoa(n uint64) string { return strconv.FormatUint(n, 10) }

func hexNumber(n uint64) string { return "0x" + strconv.FormatUint(n, 16) }

// Duration writes a time with three digits that count.
func Duration(d time.Duration) string {
	switch abs := max(d, -d); {
	case abs < time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case abs < time.Millisecond:
		return digits(float64(d)/float64(time.Microsecond)) + " µs"
	case abs < time.Second:
		return digits(float64(d)/float64(time.Millisecond)) + " ms"
	}
	return digits(d.Seconds()) + " s"
}

// Bytes writes a size, in binary units where it is a round number of them.
func Bytes(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB"}
	i := 0
	for n >= 1024 && n%1024 == 0 && i < len(units)-1 {
		n /= 1024
		i++
	}
	return strconv.FormatInt(n, 10) + " " + units[i]
}

func digits(v float64) string {
	switch abs := max(v, -v); {
	case abs < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case abs < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// Seconds writes an offset in seconds with microseconds.
func Seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', 6, 64)
}
