package lab

import (
	"bytes"
	"embed"
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"
)

//go:embed scenarios/*.toml
var scenarios embed.FS

// Parse reads a scenario as TOML. What it does not know is an error, and so is
// a setting that the topology, the kind of traffic or the rest of the scenario
// leaves without a meaning.
func Parse(text []byte) (s Scenario, err error) {
	meta, err := toml.NewDecoder(bytes.NewReader(text)).Decode(&s)
	if err != nil {
		return s, plainly(err)
	}
	if keys := meta.Undecoded(); len(keys) > 0 {
		return s, s.errorf("%w", unknown(keys[0]))
	}
	if err := s.others(); err != nil {
		return s, s.errorf("%w", err)
	}
	return s, nil
}

// errorf is fmt.Errorf with the name of the scenario in front, if it has one.
func (s *Scenario) errorf(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if s.Name == "" {
		return err
	}
	return fmt.Errorf("scenario %q: %w", s.Name, err)
}

// Names returns the names of the scenarios that the package has.
func Names() (names []string) {
	entries, _ := scenarios.ReadDir("scenarios") // it is part of the program
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".toml"))
	}
	return names
}

// Text returns a scenario that the package has, as TOML.
func Text(name string) ([]byte, error) {
	b, err := scenarios.ReadFile("scenarios/" + name + ".toml")
	if err != nil {
		return nil, fmt.Errorf("there is no scenario %q; there are %s", name, strings.Join(Names(), ", "))
	}
	return b, nil
}
