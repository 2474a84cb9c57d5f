package tracefile

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// columns are those that CSV can have.
var columns = []string{"start", "from", "to", "bytes", "op", "src_port", "class"}

// Units read what has a unit: "1.5us", "64KiB".
type Units struct {
	Time, Bytes func(text string) (int64, error)
}

// CSV reads flows from CSV with a header. "#" begins a comment. A size may be a
// number alone.
func CSV(text string, u Units, l Limits) (*File, error) {
	in := csv.NewReader(strings.NewReader(text))
	in.Comment, in.TrimLeadingSpace, in.ReuseRecord = '#', true, true
	header, err := in.Read()
	if err != nil {
		return nil, fmt.Errorf("a list begins with the names of its columns: %s", strings.Join(columns, ","))
	}
	header = slices.Clone(header)
	for i, name := range header {
		if !slices.Contains(columns, name) || slices.Contains(header[:i], name) {
			return nil, fmt.Errorf("line 1: there is no column %.40q, or it is there twice: there are %s", name, strings.Join(columns, ", "))
		}
	}
	for _, name := range []string{"from", "to", "bytes"} {
		if !slices.Contains(header, name) {
			return nil, fmt.Errorf("line 1: the column %q is missing", name)
		}
	}
	l = l.withDefaults()
	f, m := &File{}, &mistakes{}
	for {
		record, err := in.Read()
		switch {
		case errors.Is(err, io.EOF):
			if len(f.Flows)+len(m.list) == 0 {
				m.add(0, "there is no flow in it")
			}
			return f, m.err()
		case err != nil: // with its line
			m.add(0, "%w", err)
			return f, m.err()
		case len(f.Flows) == l.Flows:
			m.add(0, "there are more than %d flows", l.Flows)
			return f, m.err()
		}
		flow := none(0)
		flow.Line, _ = in.FieldPos(0)
		before := len(m.list)
		for i, text := range record {
			if err := flow.set(header[i], text, u); err != nil {
				line, _ := in.FieldPos(i)
				m.add(line, "%s: %w", header[i], err)
			}
		}
		if len(m.list) == before {
			m.check(&flow, l, false)
		}
		f.Flows = append(f.Flows, flow)
	}
}

// set takes one value of a flow.
func (f *Flow) set(column, text string, u Units) (err error) {
	switch column {
	case "start":
		f.Start, err = u.Time(text)
	case "from":
		f.Src, err = whole(text)
	case "to":
		f.Dst, err = whole(text)
	case "bytes":
		if f.Bytes, err = strconv.ParseInt(text, 10, 64); err != nil {
			f.Bytes, err = u.Bytes(text)
		}
	case "op":
		f.Op = strings.Clone(text)
	case "class":
		f.Class = strings.Clone(text)
	case "src_port":
		n, e := strconv.ParseUint(text, 10, 16)
		if f.SrcPort = uint16(n); text != "" && (e != nil || n == 0) {
			err = fmt.Errorf("%.40q is no port: it is 1 to 65535", text)
		}
	}
	return err
}
