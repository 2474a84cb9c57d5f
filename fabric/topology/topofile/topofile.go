package topofile

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"

	"github.com/gosoftroce/rocev2/fabric/topology"
)

// Formats of files.
const (
	NS3   = "ns3"
	HTSim = "htsim"
)

// Formats has the formats that there are.
var Formats = []string{NS3, HTSim}

// Read returns the network of a file with a text. Without a format the text
// tells: a file of ns-3 begins with a number, one of htsim with a word.
func Read(text, format string) (*topology.Graph, error) {
	switch format {
	case "":
		guess, err := FormatOf(text)
		if err != nil {
			return nil, err
		}
		return Read(text, guess)
	case NS3:
		return readNS3(text)
	case HTSim:
		return readHTSim(text)
	}
	return nil, fmt.Errorf("topofile: there is no format %q: there are %s", format, strings.Join(Formats, ", "))
}

// FormatOf returns the format of a text.
func FormatOf(text string) (string, error) {
	for line := range strings.Lines(text) {
		switch line = strings.TrimSpace(line); {
		case line == "" || line[0] == '#':
		case line[0] >= '0' && line[0] <= '9':
			return NS3, nil
		case line[0] >= 'A' && line[0] <= 'Z' || line[0] >= 'a' && line[0] <= 'z':
			return HTSim, nil
		default:
			return "", fmt.Errorf("topofile: it begins with %.20q: a file of ns-3 begins with the numbers of nodes, switches and links, one of htsim with Nodes, Tiers or Podsize", line)
		}
	}
	return "", errors.New("topofile: there is nothing in it")
}

// Limits of the cables of package network.
const (
	leastRate = 1_000_000
	mostRate  = 8_000_000_000_000
)

// unit is a name and how much it stands for.
type unit struct {
	name string
	of   int64
}

// split divides a text into the number that it begins with and what follows.
func split(text string) (number, rest string) {
	i := strings.IndexFunc(text, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if i < 0 {
		return text, ""
	}
	return text[:i], text[i:]
}

// times returns a decimal number, without a sign, times another one. The
// product has to be whole.
func times(number string, of int64) (int64, error) {
	const longest = 32 // digits, which big numbers have the time for
	if len(number) > longest || strings.Trim(number, ".0123456789") != "" {
		return 0, fmt.Errorf("%.40q is no number", number)
	}
	r, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, fmt.Errorf("%q is no number", number)
	}
	r.Mul(r, new(big.Rat).SetInt64(of))
	if !r.IsInt() {
		return 0, fmt.Errorf("%s is too exact", number)
	}
	if r.Cmp(new(big.Rat).SetInt64(math.MaxInt64/4)) > 0 {
		return 0, fmt.Errorf("%s is too large", number)
	}
	return r.Num().Int64(), nil
}

// quantity reads a number with one of the units. plain is what the unit of a
// number without one stands for; 0: it must have one.
func quantity(text string, units []unit, plain int64) (int64, error) {
	number, name := split(text)
	if name == "" && plain != 0 {
		return times(number, plain)
	}
	var names []string
	for _, u := range units {
		if u.name == name {
			return times(number, u.of)
		}
		names = append(names, u.name)
	}
	return 0, fmt.Errorf("%.40q has no unit that is known: there are %s", text, strings.Join(names, ", "))
}

// checkRate says what is wrong with the rate of a cable.
func checkRate(rate int64) error {
	if rate < leastRate || rate > mostRate {
		return fmt.Errorf("a rate of %d bit/s: it is 1 Mb/s to 8 Tb/s", rate)
	}
	return nil
}

// checkDelay says what is wrong with the delay of a cable.
func checkDelay(delay int64) error {
	if delay > topology.MaxDelay {
		return fmt.Errorf("a delay of %d ps: it is at most 1 s", delay)
	}
	return nil
}

// mistakes are what is wrong with a file, the first of it.
type mistakes []error

// add notes one, and reports whether those are enough.
func (m *mistakes) add(err error) (enough bool) {
	const most = 10
	if err != nil {
		*m = append(*m, err)
	}
	return len(*m) >= most
}

// all returns them as one error, a line each.
func (m mistakes) all() error { return errors.Join(m...) }
