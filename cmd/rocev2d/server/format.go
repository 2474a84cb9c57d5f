package server

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/web"
)

// scaled is a number as people read it, with three digits.
func scaled(n, base float64, units ...string) string {
	i := 0
	for n >= base && i < len(units)-1 {
		n /= base
		i++
	}
	form := strconv.FormatFloat(n, 'f', 0, 64)
	if n < 100 && n != math.Trunc(n) {
		digits := 2
		if n >= 10 {
			digits = 1
		}
		form = strconv.FormatFloat(n, 'f', digits, 64)
	}
	if units[i] == "" {
		return form
	}
	return form + " " + units[i]
}

func bytesText(n float64) string  { return scaled(n, 1024, "B", "KiB", "MiB", "GiB", "TiB", "PiB") }
func countText(n float64) string  { return scaled(n, 1000, "", "k", "M", "G", "T") }
func microsText(n float64) string { return scaled(n, 1000, "µs", "ms", "s") }

// sinceText is how long ago a time is.
func sinceText(now, t time.Time) string {
	switch s := math.Max(0, now.Sub(t).Seconds()); {
	case s < 60:
		return fmt.Sprintf("%.0f s", s)
	case s < 3600:
		return fmt.Sprintf("%.0f min", s/60)
	case s < 86400:
		return fmt.Sprintf("%.1f h", s/3600)
	default:
		return fmt.Sprintf("%.1f d", s/86400)
	}
}

// Cells of tables.
func text(s string) web.Cell      { return web.Cell{Text: s} }
func number(s string) web.Cell    { return web.Cell{Text: s, Class: "n"} }
func wideText(s string) web.Cell  { return web.Cell{Text: s, Class: "wide"} }
func hexNumber(n uint32) web.Cell { return web.Cell{Text: fmt.Sprintf("0x%06x", n)} }

func code(s string) web.Cell { return web.Cell{Text: s, Code: true} }

// some is a number that is left out where it is 0.
func some(n uint64, form func(float64) string) web.Cell {
	if n == 0 {
		return number("")
	}
	return number(form(float64(n)))
}

// clock is a time of the day. The page shows it in the reader's own time.
func clock(t time.Time) web.Cell {
	return web.Cell{Text: t.UTC().Format("15:04:05 UTC"), Time: t.UTC().Format(time.RFC3339Nano)}
}

// tag is a state, with its colour.
func tag(state string) web.Cell {
	tones := map[string]string{"RTS": "ok", "RTR": "ok", "ERR": "bad", "SQE": "bad", "SQD": "warn"}
	return web.Cell{Tag: state, Tone: tones[state]}
}
