package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gosoftroce/rocev2/internal/closest"
)

// deviceFlag is the name of a device. A command has one.
type deviceFlag struct{ name *string }

func (f deviceFlag) String() string {
	if f.name == nil {
		return ""
	}
	return *f.name
}
func (f deviceFlag) Type() string { return "address" }

func (f deviceFlag) Set(s string) error {
	switch {
	case s == "":
		return errors.New("a device is an address of this host or an interface")
	case *f.name != "":
		return fmt.Errorf("the device is already %s: a command has only one device", *f.name)
	}
	*f.name = s
	return nil
}

// sizeFlag is a number of bytes, with K or M for 2^10 and 2^20 as perftest has
// them, and the units of the rest of this tool that mean the same.
type sizeFlag struct{ n *int }

var sizeUnits = []struct {
	name  string
	shift int
}{{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"K", 10}, {"M", 20}, {"G", 30}, {"", 0}}

func (f sizeFlag) String() string {
	if f.n == nil {
		return "0"
	}
	return strconv.Itoa(*f.n)
}
func (f sizeFlag) Type() string { return "bytes" }

func (f sizeFlag) Set(s string) error {
	digits := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	unit := s[len(digits):]
	n, err := strconv.ParseInt(digits, 10, 64)
	for _, u := range sizeUnits {
		switch {
		case !strings.EqualFold(u.name, unit):
		case errors.Is(err, strconv.ErrRange), err == nil && (n > math.MaxInt32>>u.shift || n < math.MinInt32>>u.shift):
			return fmt.Errorf("a size is at most %d bytes", math.MaxInt32)
		case err == nil:
			*f.n = int(n << u.shift)
			return nil
		}
	}
	if strings.EqualFold(unit, "KB") || strings.EqualFold(unit, "MB") {
		return fmt.Errorf("%s means 1000 or 1024 to different people: write %s%s for 2^10 or 2^20 bytes, or the number of bytes", unit, digits, strings.ToUpper(unit[:1]))
	}
	return errors.New("a size is a number of bytes, or a number with K or M for 2^10 or 2^20 bytes")
}

// choiceFlag accepts the values that make no difference here.
type choiceFlag struct {
	values []string // the first is the default
	why    string   // there is nothing else
}

func (f choiceFlag) String() string {
	if len(f.values) == 0 {
		return ""
	}
	return f.values[0]
}
func (f choiceFlag) Type() string { return "string" }

func (f choiceFlag) Set(s string) error {
	for _, v := range f.values {
		if strings.EqualFold(s, v) {
			return nil
		}
	}
	return errors.New(f.why)
}

// nameFlag chooses a value by its name.
type nameFlag[T fmt.Stringer] struct {
	value *T
	parse func(string) (T, error)
}

func (f nameFlag[T]) String() string {
	if f.value == nil {
		return ""
	}
	return (*f.value).String()
}
func (f nameFlag[T]) Type() string { return "string" }

func (f nameFlag[T]) Set(s string) (err error) {
	v, err := f.parse(s)
	if err == nil {
		*f.value = v
	}
	return err
}

// foreign is an option of the original program that does not apply here.
type foreign struct {
	name, short string // short may be ""
	value       bool   // it takes a value
	why         string
}

// foreignFlag is the value of one. Setting it fails and says why.
type foreignFlag struct{ foreign }

func (f foreignFlag) String() string   { return "" }
func (f foreignFlag) Type() string     { return "" }
func (f foreignFlag) Set(string) error { return &foreignError{f.foreign} }

type foreignError struct{ foreign }

func (e *foreignError) Error() string {
	if e.short != "" {
		return fmt.Sprintf("-%s, --%s: %s", e.short, e.name, e.why)
	}
	return fmt.Sprintf("--%s: %s", e.name, e.why)
}

// refuse registers options that say why they do not apply. Those that the
// command has are left alone.
func refuse(cmd *cobra.Command, list []foreign) {
	fs := cmd.Flags()
	for _, f := range list {
		if fs.Lookup(f.name) != nil {
			continue
		}
		if f.short != "" && fs.ShorthandLookup(f.short) != nil {
			f.short = ""
		}
		flag := fs.VarPF(foreignFlag{f}, f.name, f.short, "")
		flag.Hidden = true
		if !f.value {
			flag.NoOptDefVal = "true"
		}
	}
}

// accept registers options without meaning here that scripts may have.
func accept(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		cmd.Flags().Bool(name, false, "accepted for compatibility: it makes no difference here")
		cmd.Flags().MarkHidden(name)
	}
}

// flagError is what the user reads of an error in a flag.
func flagError(cmd *cobra.Command, err error) error {
	var f *foreignError
	var bad *pflag.InvalidValueError
	switch {
	case errors.As(err, &f):
		err = f
	case errors.As(err, &bad):
		flag, value := bad.GetFlag(), bad.GetValue()
		if want := wantedOf(flag); want != "" {
			err = fmt.Errorf("--%s %q: it must be %s", flag.Name, value, want)
		}
		// "-size 5" is -s with the value "ize".
		if long, _, _ := strings.Cut(flag.Shorthand+value, "="); flag.Shorthand != "" && cmd.Flags().Lookup(long) != nil {
			err = fmt.Errorf("%w (do you mean --%s?)", err, long)
		}
	}
	var none *pflag.NotExistError
	if errors.As(err, &none) {
		err = fmt.Errorf("%w%s", err, closest.Flag(none.GetSpecifiedName(), none.GetSpecifiedShortnames(), namesOf(cmd.Flags())))
	}
	return usageError{err}
}

// namesOf returns the names of flags that help shows.
func namesOf(fs *pflag.FlagSet) (names []string) {
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

// wantedOf says what the value of a flag must be, where the parser of its type
// tells only of itself.
func wantedOf(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "int":
		return fmt.Sprintf("a whole number of at most %d", math.MaxInt)
	case "uint64":
		return fmt.Sprintf("a whole number from 0 to %d", uint64(math.MaxUint64))
	case "float64":
		if unit, _ := pflag.UnquoteUsage(f); unit != "float" {
			return "a number (" + unit + ")"
		}
		return "a number"
	case "duration":
		return "a time with its unit, such as 30s, 500ms or 2m"
	case "bool":
		return "true or false"
	}
	return ""
}
