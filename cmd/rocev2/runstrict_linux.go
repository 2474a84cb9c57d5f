package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/gosoftroce/rocev2/programs"
	"github.com/gosoftroce/rocev2/verbs"
)

// strictReport is the file that programs write to.
type strictReport struct {
	strictFlags
	file string
}

// begin makes the file. The result is nil without strict mode.
func (f *strictFlags) begin() (*strictReport, error) {
	if !f.on() {
		return nil, nil
	}
	if f.json != "" { // before the program runs
		if err := writeFindingsJSON(f.json, nil); err != nil {
			return nil, err
		}
	}
	file, err := os.CreateTemp("", "rocev2-strict-")
	if err != nil {
		return nil, fmt.Errorf("a file for what is found: %w", err)
	}
	return &strictReport{*f, file.Name()}, file.Close()
}

// meant says what was meant where a program is not found, whose name is that of
// rules: --strict on.
func (f *strictFlags) meant(name string, err error) error {
	if f.rules == "on" && name != "" && verbs.CheckStrict(name, "") == nil {
		return fmt.Errorf("%w; the rules of --strict come after \"=\": --strict=%s", err, name)
	}
	return err
}

// remove takes the file away.
func (r *strictReport) remove() {
	if r != nil {
		os.Remove(r.file)
	}
}

// env returns the environment of the program.
func (r *strictReport) env(env []string) []string {
	if r == nil {
		return env
	}
	for name, value := range map[string]string{programs.EnvStrict: r.rules, programs.EnvProfile: r.profile, programs.EnvReport: r.file} {
		env = slices.DeleteFunc(env, func(s string) bool { return strings.HasPrefix(s, name+"=") })
		env = append(env, name+"="+value)
	}
	return env
}

// end tells what was found, and returns how many rules were broken. The file
// goes.
func (r *strictReport) end(w io.Writer, program string) int {
	if r == nil {
		return 0
	}
	defer r.remove()
	found, err := programs.ReadFindings(r.file, r.rules, r.profile)
	if err != nil {
		fmt.Fprintf(w, "rocev2 run: %v\n", err)
	}
	writeFindings(w, program, &found)
	if r.json != "" {
		if err := writeFindingsJSON(r.json, found.List); err != nil {
			fmt.Fprintf(w, "rocev2 run: %v\n", err)
		}
	}
	return len(found.List)
}

// writeFindings tells what programs have done that adapters punish.
func writeFindings(w io.Writer, program string, found *programs.Findings) {
	switch {
	case found.Devices == 0 && len(found.List) == 0:
		fmt.Fprintf(w, "rocev2 run: strict: %s has opened no device in strict mode, so nothing was looked at.\n"+
			"Go programs have verbs.Config.Strict; others use another transport, or libraries without verbs.\n", program)
		return
	case len(found.List) == 0:
		fmt.Fprintf(w, "rocev2 run: strict: nothing was found, on %s.\n", amount(uint64(found.Devices), "device"))
		return
	}
	fmt.Fprintf(w, "rocev2 run: strict: adapters punish what %s does:\n", program)
	rules := map[string]verbs.StrictRule{}
	for _, r := range verbs.StrictRules() {
		rules[r.Name] = r
	}
	for _, f := range found.List {
		on := ""
		if f.Device != "" {
			on = " on " + f.Device
		}
		fmt.Fprintf(w, "  %s\n    %s, process %d%s, %s\n    An adapter: %s\n", printable(f.Finding.String()), printable(f.Command), f.PID, on, amount(f.Count, "time"),
			strings.ReplaceAll(rules[f.Rule].Adapter, "`", ""))
	}
	fmt.Fprintln(w, "docs/strict.md has the rules and their sources.")
}

// printable makes a process's own words harmless to a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}

// jsonFinding is a finding in the file of --strict-json.
type jsonFinding struct {
	programs.ProgramFinding
	Adapter string `json:"adapter"` // what an adapter does
	Source  string `json:"source"`  // where that is said
}

func writeFindingsJSON(file string, list []programs.ProgramFinding) error {
	rules := map[string]verbs.StrictRule{}
	for _, r := range verbs.StrictRules() {
		rules[r.Name] = r
	}
	out := []jsonFinding{}
	for _, f := range list {
		out = append(out, jsonFinding{f, rules[f.Rule].Adapter, rules[f.Rule].Source})
	}
	b, err := json.MarshalIndent(out, "", "  ")
	if err == nil {
		err = os.WriteFile(file, append(b, '\n'), 0o644)
	}
	return err
}
