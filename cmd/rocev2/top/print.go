package top

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"
)

// Source takes samples. An error says that there is nothing to be had now.
type Source interface {
	Sample(ctx context.Context) (*Sample, error)
}

// Plain says what Print writes.
type Plain struct {
	Once bool
	JSON bool
	Rows int // of each table; 0: all
}

// Print writes the tables of a view once an interval, until the context ends.
// The first ones come after an interval: rates need it. A source that fails is
// told of, and asked again; with Once, and at the beginning, it is an error.
func Print(ctx context.Context, w io.Writer, src Source, v *View, p Plain) error {
	s, err := src.Sample(ctx)
	if err != nil {
		return err
	}
	v.Take(s)
	tick := time.NewTicker(v.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		s, err := src.Sample(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && p.Once:
			return err
		case err != nil:
			v.Fail(err)
		default:
			v.Take(s)
		}
		if err := v.print(w, p); err != nil || p.Once {
			return err
		}
	}
}

func (v *View) print(w io.Writer, p Plain) error {
	if p.JSON {
		return json.NewEncoder(w).Encode(v.object())
	}
	if v.trouble != "" {
		_, err := fmt.Fprintf(w, "%s %s\n\n", time.Now().Format("15:04:05"), v.trouble)
		return err
	}
	b := fmt.Appendf(nil, "%s\n%s\n", v.title(), v.sums())
	if v.now.Notice != "" {
		b = fmt.Appendf(b, "%s\n", shown(v.now.Notice, 400))
	}
	for i, t := range v.tables {
		b = fmt.Appendf(b, "\n%s: %d\n", t.Title, t.total)
		if len(t.rows) == 0 {
			continue
		}
		columns := t.visible(math.MaxInt, v.sorting[i].Column)
		b = fmt.Appendln(b, t.titles(columns))
		n := len(t.rows)
		if p.Rows > 0 {
			n = min(n, p.Rows)
		}
		for _, row := range t.rows[:n] {
			b = fmt.Appendln(b, t.line(row, columns))
		}
		if n < t.total {
			b = fmt.Appendf(b, "... and %d more\n", t.total-n)
		}
	}
	_, err := w.Write(append(b, '\n'))
	return err
}

// object is a sample as JSON shows it.
func (v *View) object() any {
	type object struct {
		Time     time.Time `json:"time"`
		Source   string    `json:"source"`
		State    string    `json:"state,omitempty"`
		Notice   string    `json:"notice,omitempty"`
		Error    string    `json:"error,omitempty"`
		Total    int       `json:"qps_total"`
		Devices  *Table    `json:"devices"`
		QPs      *Table    `json:"qps"`
		Programs *Table    `json:"programs"`
	}
	if v.trouble != "" {
		return object{Time: time.Now(), Source: v.now.Source, Error: v.trouble}
	}
	return object{v.now.Time, v.now.Source, v.now.State, v.now.Notice, "", v.now.QPsTotal, v.tables[0], v.tables[1], v.tables[2]}
}
