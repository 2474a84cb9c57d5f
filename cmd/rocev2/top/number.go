package top

import (
	"math"
	"strconv"
)

// short returns a number that is not negative in five characters at most, as
// 12.3M. Base is 1000 or 1024.
func short(n, base float64) string {
	if math.IsNaN(n) || n < 0 {
		return "-"
	}
	const units = " KMGTPE"
	i := 0
	for i < len(units)-1 && n >= 999.5 {
		n /= base
		i++
	}
	unit := ""
	if i > 0 {
		unit = units[i : i+1]
	}
	if n < 9.95 && (i > 0 || n != math.Trunc(n)) {
		return strconv.FormatFloat(n, 'f', 1, 64) + unit
	}
	return strconv.FormatFloat(n, 'f', 0, 64) + unit
}

// micros returns a time in µs, "-" where there is none.
func micros(us float64) string {
	switch {
	case us <= 0:
		return "-"
	case us < 9999.5:
		return strconv.FormatFloat(us, 'f', 0, 64) + "us"
	case us < 9999.5e3:
		return strconv.FormatFloat(us/1e3, 'f', 0, 64) + "ms"
	}
	return strconv.FormatFloat(us/1e6, 'f', 0, 64) + "s"
}
