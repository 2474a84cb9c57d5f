package main

import (
	"github.com/spf13/pflag"

	"github.com/gosoftroce/rocev2/verbs"
)

// strictFlags are the flags of strict mode.
type strictFlags struct {
	rules, profile string
	json           string // file of the report
	status         int    // of run where something was found; 0: that of the program
}

func (f *strictFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.rules, "strict", "", "behave like an adapter, by `rules`; at the end, tell what adapters punish")
	fs.Lookup("strict").NoOptDefVal = "on"
	fs.StringVar(&f.profile, "profile", "", "the limits of an adapter, `mlx5`, rxe or efa, and --strict")
	fs.StringVar(&f.json, "strict-json", "", "write what --strict has found to a `file`, as a JSON array")
	fs.IntVar(&f.status, "strict-status", 0, "exit `status` where --strict has found something; 0 is that of the program")
}

// on reports whether anything is to be found.
func (f *strictFlags) on() bool {
	return f.profile != "" && f.rules != "off" || f.rules != "" && f.rules != "off"
}

// check returns a usage error for what cannot be.
func (f *strictFlags) check() error {
	if err := verbs.CheckStrict(f.rules, f.profile); err != nil {
		return usagef("%v", err)
	}
	if f.status < 0 || f.status > 255 {
		return usagef("--strict-status is %d; an exit status is 0 to 255", f.status)
	}
	if !f.on() && (f.json != "" || f.status != 0) {
		return usagef("--strict-json and --strict-status need --strict")
	}
	return nil
}
