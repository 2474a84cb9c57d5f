package programs

import (
	"fmt"
	"os"

	"github.com/gosoftroce/rocev2/hca/strict"
	"github.com/gosoftroce/rocev2/verbs"
)

// The environment of programs in strict mode: verbs.Config.Strict and Profile,
// and a file that is there, which they append what they have found to. Without
// a file they write it to standard error.
const (
	EnvStrict  = strict.EnvRules
	EnvProfile = strict.EnvProfile
	EnvReport  = strict.EnvReport
)

// Findings are what programs have found in strict mode.
type Findings struct {
	Devices int // that were opened, by all processes
	List    []ProgramFinding
}

// ProgramFinding is what a process has done on a device.
type ProgramFinding struct {
	PID     int    `json:"pid"`
	Command string `json:"command"` // of the process
	Device  string `json:"device"`  // as programs know it; empty where it is not known
	verbs.Finding
}

// ReadFindings reads the file of EnvReport. Of the rules that Strict and
// Profile say.
func ReadFindings(file, rules, profile string) (out Findings, err error) {
	set, err := strict.RulesOf(rules, profile)
	if err != nil {
		return out, err
	}
	f, err := os.Open(file)
	if err != nil {
		return out, fmt.Errorf("read what strict mode has found: %w", err)
	}
	defer f.Close()
	r, err := strict.ReadReport(f, set)
	for _, l := range r.Lines {
		out.List = append(out.List, ProgramFinding{l.PID, l.Command, l.Device, verbs.Finding(l.Finding)})
	}
	out.Devices = r.Devices
	return out, err
}
