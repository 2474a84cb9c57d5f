package grid

import (
	"context"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
)

// Reference returns the name of the cell that is measured right before and
// right after each other cell of a group, "" if the group has none. Some
// machines run at two speeds, and change from one to the other within seconds:
// what the reference gave says whether one did so meanwhile.
func Reference(group string) string {
	return map[string]string{
		"bulk":             "raw/4140/icrc",
		"bidirectional":    "raw/4140/icrc/both",
		"mtu 1024":         "raw/1064/icrc",
		"latency, polling": "raw/rtt/spin",
		"latency, blocked": "raw/rtt/block",
	}[group]
}

// reference measures the reference of a group; without one it does nothing.
type reference struct {
	run    runFunc
	window cell.Window
	last   float64 // after the cell before; 0 if there is none
}

// around calls run, which adds at most one sample to the row, and notes what
// the reference gave before and after it. A reading after one cell is that
// before the next, and so is a sample of the reference itself.
func (r *reference) around(ctx context.Context, row *cell.Row, run func()) {
	if r.run == nil {
		run()
		return
	}
	before, had := r.last, len(row.Samples)
	own := row.Name == Reference(row.Group)
	if !own && before == 0 {
		before = r.read(ctx)
	}
	run()
	switch {
	case !own:
		r.last = r.read(ctx)
	case len(row.Samples) > had:
		r.last = reading(&row.Samples[had])
	}
	if !own && len(row.Samples) > had {
		s := &row.Samples[had]
		s.Before, s.After = before, r.last
	}
}

func (r *reference) read(ctx context.Context) float64 {
	s := r.run(ctx, r.window)
	return reading(&s)
}

// reading is the value of a sample, 0 if it has none.
func reading(s *cell.Sample) float64 {
	if !s.OK() {
		return 0
	}
	return s.Value
}
