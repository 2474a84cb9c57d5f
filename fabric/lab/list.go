package lab

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/ib"
)

// columns are those that a list of flows can have.
var columns = []string{"start", "from", "to", "bytes", "op", "src_port"}

// Files returns the files that the scenario's network and traffic are in, by
// the setting that their text belongs into: see Set. They stand beside the
// scenario, or below it.
func (s *Scenario) Files() (map[string]string, error) {
	files := map[string]string{}
	add := func(where, file, text, setting string) error {
		switch {
		case file == "" || text != "":
		case !filepath.IsLocal(file):
			return s.errorf("%s is %q: it is beside the scenario, or in a directory there", where, file)
		default:
			files[setting] = file
		}
		return nil
	}
	if err := add("network.file", s.Network.File, s.Network.Text, "network.text"); err != nil {
		return nil, err
	}
	for i := range s.Traffic {
		t := &s.Traffic[i]
		if err := add(fmt.Sprintf("traffic %d: file", i+1), t.File, t.List, fmt.Sprintf("traffic.%d.list", i)); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// list has the flows of a list begin.
func (r *run) list(t *Traffic, op int) error {
	if t.List == "" {
		return errors.New("list has the flows, or file says where they are")
	}
	flows, err := r.parseList(t, op)
	if err != nil {
		return fmt.Errorf("%s: %w", orDefault(t.File, "list"), err)
	}
	if err := r.provide(len(flows)); err != nil {
		return err
	}
	for _, f := range flows {
		r.open++
		r.net.At(event.Time(f.Start), func() { r.start(f) })
	}
	return nil
}

// parseList reads flows from CSV with a header.
func (r *run) parseList(t *Traffic, op int) (flows []*Flow, err error) {
	in := csv.NewReader(strings.NewReader(t.List))
	in.Comment, in.TrimLeadingSpace, in.ReuseRecord = '#', true, true
	header, err := in.Read()
	if err != nil {
		return nil, fmt.Errorf("a list begins with the names of its columns: %s", strings.Join(columns, ","))
	}
	header = slices.Clone(header)
	for i, name := range header {
		if !slices.Contains(columns, name) || slices.Contains(header[:i], name) {
			return nil, fmt.Errorf("there is no column %q, or it is there twice: there are %s", name, strings.Join(columns, ", "))
		}
	}
	for _, name := range []string{"from", "to", "bytes"} {
		if !slices.Contains(header, name) {
			return nil, fmt.Errorf("the column %q is missing", name)
		}
	}
	for {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			if len(flows) == 0 {
				err = errors.New("there is no flow in it")
				return nil, err
			}
			return flows, nil
		}
		if err != nil {
			return nil, err // with its line
		}
		f := &Flow{Start: t.Start, op: op}
		for i, text := range record {
			if err := r.set(f, header[i], text, t.Start); err != nil {
				line, _ := in.FieldPos(i)
				return nil, fmt.Errorf("line %d: %s: %w", line, header[i], err)
			}
		}
		line, _ := in.FieldPos(0)
		switch {
		case f.Src == f.Dst:
			return nil, fmt.Errorf("line %d: from host %d to itself", line, f.Src)
		case r.s.Until > 0 && f.Start >= r.s.Until:
			return nil, fmt.Errorf("line %d: it starts at %v, and the run ends at %v", line, f.Start, r.s.Until)
		case len(flows) == mostFlows:
			return nil, fmt.Errorf("there are more than %d flows", mostFlows)
		}
		flows = append(flows, f)
	}
}

// set takes one value of a flow.
func (r *run) set(f *Flow, column, text string, start Time) (err error) {
	host := func() (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n >= int(r.g.Hosts()) {
			return 0, fmt.Errorf("%q is no host: there are 0 to %d", text, r.g.Hosts()-1)
		}
		return n, nil
	}
	switch column {
	case "start":
		var at Time
		if err = at.UnmarshalText([]byte(text)); err == nil && at > mostTime {
			err = fmt.Errorf("it is above %v", mostTime)
		}
		f.Start = start + at
	case "from":
		f.Src, err = host()
	case "to":
		f.Dst, err = host()
	case "bytes":
		var n Bytes
		if v, e := strconv.ParseInt(text, 10, 64); e == nil {
			n = Bytes(v)
		} else if err = n.UnmarshalText([]byte(text)); err != nil {
			return err
		}
		if f.Bytes = int64(n); n < 1 || n > mostFlow {
			err = fmt.Errorf("%q: a flow has 1B to %v", text, Bytes(mostFlow))
		}
	case "op":
		f.op, err = oneOf("it", text, operations, f.op)
	case "src_port":
		n, e := strconv.ParseUint(text, 10, 16)
		if f.port = uint16(n); text != "" && (e != nil || n < ib.MinSrcPort) {
			err = fmt.Errorf("%q: it is %d to 65535", text, ib.MinSrcPort)
		}
	}
	return err
}
