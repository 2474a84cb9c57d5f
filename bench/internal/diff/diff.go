// Package diff compares two builds of the measuring program, and with them two
// commits of the stack, on one machine: cell by cell they run in turn, and the
// report says which cells differ.
//
// Figures of two runs that do not take turns say little: a machine is slower at
// one time than at another. In a round of this comparison the old build and the
// new one measure a cell one right after the other, and the next round begins
// with the other of them.
package diff

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
)

// Round is a cell measured once by either build.
type Round struct {
	Name string      `json:"name"`
	Unit string      `json:"unit"`
	Old  cell.Sample `json:"old"`
	New  cell.Sample `json:"new"`
}

// Samples are the rounds of a comparison, with what they compare. They are
// stored so that a comparison can go on later: a line with Builds, then a line
// for each round.
type Samples struct {
	Builds Builds
	Rounds []Round
}

// Builds name what is compared.
type Builds struct {
	Old, New       string // as the user called them
	OldSum, NewSum string // of the executables
}

// Same reports whether both compare the same executables.
func (b Builds) Same(c Builds) bool { return b.OldSum == c.OldSum && b.NewSum == c.NewSum }

// Done returns how many rounds of a cell there are.
func (s *Samples) Done(name string) (n int) {
	for i := range s.Rounds {
		if s.Rounds[i].Name == name {
			n++
		}
	}
	return n
}

// Load reads the rounds of an earlier comparison of the same executables. A
// file that is not there has none.
func Load(file string, b Builds) (*Samples, error) {
	s := &Samples{Builds: b}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := s.read(f); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if !s.Builds.Same(b) {
		return nil, fmt.Errorf("%s has rounds of other executables (%s and %s): choose another directory, or remove it", file, s.Builds.Old, s.Builds.New)
	}
	return s, nil
}

func (s *Samples) read(r io.Reader) error {
	dec := json.NewDecoder(bufio.NewReader(r))
	if err := dec.Decode(&s.Builds); err != nil {
		return err
	}
	for {
		var one Round
		if err := dec.Decode(&one); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		s.Rounds = append(s.Rounds, one)
	}
}

// Save writes what Load reads.
func (s *Samples) Save(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	err = enc.Encode(&s.Builds)
	for i := range s.Rounds {
		err = errors.Join(err, enc.Encode(&s.Rounds[i]))
	}
	return errors.Join(err, w.Flush(), f.Close())
}

// pairs returns the values of a cell, NaN where a run had errors, and how many
// runs had, with the first one's.
func (s *Samples) pairs(name string) (before, after []float64, old, fresh faults) {
	for i := range s.Rounds {
		r := &s.Rounds[i]
		if r.Name == name {
			before = append(before, old.take(&r.Old))
			after = append(after, fresh.take(&r.New))
		}
	}
	return before, after, old, fresh
}

// faults counts runs with errors.
type faults struct {
	runs, bad int
	first     string
}

func (f *faults) take(s *cell.Sample) float64 {
	f.runs++
	if s.OK() {
		return s.Value
	}
	if f.bad++; f.bad == 1 {
		f.first = s.Why()
	}
	return math.NaN()
}
