package lab

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/gosoftroce/rocev2/internal/closest"
	"github.com/gosoftroce/rocev2/internal/tomllines"
)

//go:embed scenarios/*.toml
var scenarios embed.FS

// Parse reads a scenario as TOML. What it does not know is an error, and so is
// a setting that the topology, the kind of traffic or the rest of the scenario
// leaves without a meaning, and one that is 0 where 0 in a Scenario stands for
// a default. Errors, those of Run too, name the line where it is known.
func Parse(text []byte) (Scenario, error) {
	return decode(text, plainly, func(said map[string]int) map[string]int { return said })
}

// ParseChanged is Parse of a text that Set has changed. Errors name the lines
// of the text as it was before, which its author knows.
func ParseChanged(before, text []byte) (Scenario, error) {
	if bytes.Equal(before, text) {
		return Parse(text)
	}
	return decode(text, plainlyOf, func(said map[string]int) map[string]int { return linesBefore(string(before), string(text), said) })
}

// linesBefore returns where the settings of a text stood before it was changed,
// but for those that have changed.
func linesBefore(before, text string, now map[string]int) map[string]int {
	found := tomllines.Find(before)
	was, is := strings.Split(before, "\n"), strings.Split(text, "\n")
	maps.DeleteFunc(found, func(key string, line int) bool { return now[key] == 0 || was[line-1] != is[now[key]-1] })
	return found
}

// decode reads a scenario. plainly is for errors of the reader of TOML, lines
// says which lines errors name of the settings that are there.
func decode(text []byte, plainly func(error) error, lines func(said map[string]int) map[string]int) (s Scenario, err error) {
	meta, err := toml.NewDecoder(bytes.NewReader(text)).Decode(&s)
	if err != nil {
		return s, plainly(err)
	}
	s.said = tomllines.Find(string(text))
	s.lines = lines(s.said)
	var wrong []error
	for _, key := range meta.Keys() {
		if err := unknown(key); err != nil && len(wrong) < mostMistakes {
			wrong = append(wrong, s.errorAt(s.lineOf(key), err))
		}
	}
	if len(wrong) > 0 {
		return s, errors.Join(wrong...) // what they should say is missing elsewhere
	}
	if err := s.zeros(); err != nil {
		return s, err
	}
	return s, s.located(s.others())
}

// errorf is fmt.Errorf with the name of the scenario in front, if it has one,
// and the line, if the error begins with a setting, or a table, of a text.
func (s *Scenario) errorf(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return s.errorAt(s.line(err.Error()), err)
}

// located is errorf for an error that may be several, each with its line.
func (s *Scenario) located(err error) error {
	all, ok := err.(interface{ Unwrap() []error })
	if err == nil {
		return nil
	}
	if !ok {
		return s.errorf("%w", err)
	}
	var list []error
	for _, err := range all.Unwrap() {
		list = append(list, s.errorf("%w", err))
	}
	return errors.Join(list...)
}

// joined is several mistakes of a scenario, each with the name of its setting.
type joined []error

func (j joined) Error() string { return errors.Join(j...).Error() }

// Unwrap returns them.
func (j joined) Unwrap() []error { return j }

// when returns a mistake, if there is one.
func when(wrong bool, format string, args ...any) error {
	if !wrong {
		return nil
	}
	for i := range args {
		args[i] = exact(args[i])
	}
	return fmt.Errorf(format, args...)
}

// mistakes returns those that an error is, none if it is nil.
func mistakes(err error) []error {
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		return list.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// join puts mistakes together. Some may be nil.
func join(some ...error) error {
	var all joined
	for _, err := range some {
		all = append(all, mistakes(err)...)
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return all
}

func (s *Scenario) errorAt(line int, err error) error {
	if line > 0 {
		err = fmt.Errorf("line %d: %w", line, err)
	}
	if s.Name != "" {
		err = fmt.Errorf("scenario %q: %w", s.Name, err)
	}
	return err
}

// line returns the line of the setting that an error begins with, or else of
// its table; 0 if it is not known. "traffic 2" is the second [[traffic]].
func (s *Scenario) line(text string) int {
	setting, rest := text, ""
	if i := strings.IndexFunc(text, func(r rune) bool { return r != '.' && r != '_' && (r < 'a' || r > 'z') }); i >= 0 {
		setting, rest = text[:i], text[i:]
	}
	var n int
	if _, err := fmt.Sscanf(rest, " %d", &n); err == nil {
		setting = fmt.Sprintf("%s.%d", setting, n-1)
	}
	for ok := true; ok; {
		if line := s.lines[setting]; line > 0 {
			return line
		}
		i := strings.LastIndexByte(setting, '.')
		if ok = i >= 0; ok {
			setting = setting[:i]
		}
	}
	return 0
}

// lineAt returns the line of a setting with the numbers of tables in its name,
// as in "traffic.1.to", or else of its table, or 0.
func (s *Scenario) lineAt(setting string) int {
	for s.lines[setting] == 0 {
		i := strings.LastIndexByte(setting, '.')
		if i < 0 {
			return 0
		}
		setting = setting[:i]
	}
	return s.lines[setting]
}

// lineOf returns the first line that has a key, or that of its table, or 0.
func (s *Scenario) lineOf(key toml.Key) int {
	if line := s.lines[strings.Join(key, ".")]; line > 0 {
		return line
	}
	for i := 0; ; i++ { // of a list of tables
		table := fmt.Sprintf("%s.%d", key[0], i)
		if s.lines[table] == 0 {
			return s.line(strings.Join(key, "."))
		}
		if line := s.lines[strings.Join(append([]string{table}, key[1:]...), ".")]; line > 0 {
			return line
		}
	}
}

// Names returns the names of the scenarios that the package has.
func Names() (names []string) {
	entries, _ := scenarios.ReadDir("scenarios") // it is part of the program
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".toml"))
	}
	return names
}

// Text returns a scenario that the package has, as TOML. Of another name there
// is an error, with those that there are.
func Text(name string) ([]byte, error) {
	b, err := scenarios.ReadFile("scenarios/" + name + ".toml")
	if err != nil {
		return nil, fmt.Errorf("there is no scenario %q; there are %s%s", name, strings.Join(Names(), ", "), closest.Question(name, Names()))
	}
	return b, nil
}
