// Command values writes the files of package verbs that show programs the
// values of the packages below: types as aliases, with documentation and
// constants of the originals. An alias alone shows a reader neither fields nor
// methods: go doc and pkg.go.dev print what it stands for by its name. So the
// documentation of a struct has its fields and methods, too.
//
//	go generate ./verbs
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// value is a type of another package that programs see as one of package verbs.
type value struct {
	pkg     string // its directory in the module
	name    string
	methods string // that its documentation shows, with spaces between
	as      string // its name in package verbs, if it is another one
	closed  bool   // no field of it is for programs
}

// file is a file of package verbs.
type file struct {
	name   string
	values []value
}

var files = []file{
	{"requests", []value{
		{pkg: "ib", name: "Opcode"},
		{pkg: "ib", name: "SGE", methods: "Err"},
		{pkg: "ib", name: "RemoteAddr"},
		{pkg: "ib", name: "SendWR"},
		{pkg: "ib", name: "RecvWR"},
		{pkg: "ib", name: "AddressHandle", methods: "Query Modify Close", closed: true},
	}},
	{"completions", []value{
		{pkg: "ib", name: "WCOpcode"},
		{pkg: "ib", name: "Status"},
		{pkg: "ib", name: "WC", methods: "Err String Explain Vendor Fault"},
		{pkg: "ib", name: "VendorErr"}, // constants alone
		{pkg: "ib", name: "WCError", methods: "Error Unwrap"},
		{pkg: "ib", name: "Fault"},
	}},
	{"queuepairs", []value{
		{pkg: "ib", name: "QPType"},
		{pkg: "ib", name: "State"},
		{pkg: "ib", name: "AttrMask"},
		{pkg: "ib", name: "Attr"},
		{pkg: "ib", name: "MigState"},
		{pkg: "ib", name: "AddressVector"},
	}},
	{"memory", []value{
		{pkg: "ib", name: "Access"},
		{pkg: "ib", name: "Key"},
		{pkg: "ib", name: "MWType"},
		{pkg: "ib", name: "BindMW"},
		{pkg: "ib", name: "RegMR"},
	}},
	{"events", []value{
		{pkg: "ib", name: "Event"},
	}},
	{"errors", []value{
		{pkg: "ib", name: "ModifyError", methods: "Error Unwrap"},
		{pkg: "hca", name: "RangeError", methods: "Error"},
		{pkg: "transport/udp", name: "OpenError", methods: "Error Unwrap"},
	}},
	{"sealing", []value{
		{pkg: "hca/engine", name: "Security"},
		{pkg: "transport/psp", name: "Counters", as: "SealCounters", methods: "Each Help"},
		{pkg: "transport/guard", name: "Counters", as: "GuardCounters", methods: "Each Help"},
	}},
	{"counters", []value{
		{pkg: "transport", name: "LinkStats", methods: "Each Help"},
		{pkg: "qp/conn", name: "Stats", as: "QPStats", methods: "Each Help"},
		{pkg: "qp/conn", name: "QPDrops", methods: "Total"},
	}},
}

// renamed are the constants that have another name in package verbs, where
// theirs is taken.
var renamed = map[string]string{"ZeroBased": "ZeroBasedWindow"}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "values:", err)
		os.Exit(1)
	}
}

// run writes the files. It is started in the directory of package verbs.
func run() error {
	all, err := generate("..")
	if err != nil {
		return err
	}
	for name, text := range all {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns the files by their names, for a module in a directory.
func generate(root string) (map[string][]byte, error) {
	g := &generator{root: root, parsed: map[string]*source{}}
	all := map[string][]byte{}
	for _, f := range files {
		text, err := g.file(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		all[filepath.Join("values_"+f.name+".go")] = text
	}
	return all, nil
}
