package report

import (
	"encoding/json"
	"io"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
)

// JSONRow is a row as it is stored: with where it was measured.
type JSONRow struct {
	Environment
	cell.Row
	Version string `json:"version,omitempty"` // of the peer
}

// WriteJSON writes all rows, each on a line of its own with everything that is
// known about it.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, row := range r.Rows {
		if err := enc.Encode(JSONRow{r.Env, row, r.Versions[row.Stack]}); err != nil {
			return err
		}
	}
	return nil
}

// ReadRows reads what WriteJSON wrote.
func ReadRows(in io.Reader) ([]JSONRow, error) {
	var rows []JSONRow
	for dec := json.NewDecoder(in); ; {
		var j JSONRow
		if err := dec.Decode(&j); err == io.EOF {
			return rows, nil
		} else if err != nil {
			return nil, err
		}
		rows = append(rows, j)
	}
}

// ReadJSON makes the report of what WriteJSON wrote.
func ReadJSON(in io.Reader) (*Report, error) {
	rows, err := ReadRows(in)
	if err != nil {
		return nil, err
	}
	r := &Report{Versions: map[string]string{}}
	for _, j := range rows {
		r.Env = j.Environment
		r.Rows = append(r.Rows, j.Row)
		if j.Version != "" {
			r.Versions[j.Stack] = j.Version
		}
	}
	return r, nil
}
