package report

import (
	"encoding/json"
	"io"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
)

// jsonRow is a row as it is stored: with where it was measured.
type jsonRow struct {
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
		if err := enc.Encode(jsonRow{r.Env, row, r.Versions[row.Who]}); err != nil {
			return err
		}
	}
	return nil
}

// ReadJSON reads what WriteJSON wrote.
func ReadJSON(in io.Reader) (*Report, error) {
	r := &Report{Versions: map[string]string{}}
	for dec := json.NewDecoder(in); ; {
		var j jsonRow
		if err := dec.Decode(&j); err == io.EOF {
			return r, nil
		} else if err != nil {
			return nil, err
		}
		r.Env = j.Environment
		r.Rows = append(r.Rows, j.Row)
		if j.Version != "" {
			r.Versions[j.Who] = j.Version
		}
	}
}
