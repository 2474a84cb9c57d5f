package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/programs"
	"github.com/gosoftroce/rocev2/verbs"
)

func TestStrictFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flags   strictFlags
		on, bad bool
	}{
		{strictFlags{}, false, false},
		{strictFlags{rules: "on"}, true, false},
		{strictFlags{profile: "mlx5"}, true, false},
		{strictFlags{rules: "off", profile: "mlx5"}, false, false},
		{strictFlags{rules: "on,-no-receive", status: 3, json: "x"}, true, false},
		{strictFlags{rules: "nonsense"}, true, true},
		{strictFlags{profile: "nonsense"}, true, true},
		{strictFlags{rules: "on", status: 256}, true, true},
		{strictFlags{status: 3}, false, true},
		{strictFlags{json: "x"}, false, true},
	} {
		if got := c.flags.on(); got != c.on {
			t.Errorf("%+v is on: %v", c.flags, got)
		}
		if err := c.flags.check(); (err != nil) != c.bad {
			t.Errorf("%+v: %v", c.flags, err)
		}
	}
}

func TestWriteFindings(t *testing.T) {
	t.Parallel()
	list := []programs.ProgramFinding{{PID: 7, Command: "a\x1b[2J", Device: "rxe_lo0",
		Finding: verbs.Finding{Rule: "unsignaled", Count: 2, QPN: 17, WRID: 5, Detail: "full\n"}}}
	for _, c := range []struct {
		found programs.Findings
		want  []string
	}{
		{programs.Findings{}, []string{"./prog has opened no device in strict mode", "verbs.Config.Strict"}},
		{programs.Findings{Devices: 2}, []string{"nothing was found, on 2 devices"}},
		{programs.Findings{Devices: 1, List: list}, []string{"punish what ./prog does", "unsignaled: full? (queue pair 0x000011, wr_id 0x5)",
			"a?[2J, process 7 on rxe_lo0, 2 times", "An adapter: A slot is free only after", "ENOMEM"}},
	} {
		var out strings.Builder
		writeFindings(&out, "./prog", &c.found)
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q lacks %q", out.String(), want)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "found")
	if err := writeFindingsJSON(file, list); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal(b, &got); err != nil || len(got) != 1 || got[0]["rule"] != "unsignaled" || got[0]["pid"] != 7.0 || got[0]["source"] == "" {
		t.Errorf("%s: %v", b, err)
	}
	if err := writeFindingsJSON(file, nil); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(file); string(b) != "[]\n" {
		t.Errorf("no finding is %q", b)
	}
}

// TestStrictReport: the environment says where programs write, and the file
// goes at the end.
func TestStrictReport(t *testing.T) {
	f := strictFlags{rules: "on", profile: "rxe"}
	r, err := f.begin()
	if err != nil {
		t.Fatal(err)
	}
	env := strings.Join(r.env([]string{"A=b", "ROCEV2_STRICT=old"}), " ")
	for _, want := range []string{"A=b", "ROCEV2_STRICT=on", "ROCEV2_PROFILE=rxe", "ROCEV2_STRICT_REPORT=" + r.file} {
		if !strings.Contains(env, want) || strings.Contains(env, "old") {
			t.Errorf("the environment is %s", env)
		}
	}
	line := `{"pid":1,"device":"d","rule":"fork","count":1,"detail":"x"}` + "\n" + `{"pid":1,"device":"d","rule":"unsignaled","count":1,"detail":"not of rxe"}` + "\n"
	if err := os.WriteFile(r.file, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if n := r.end(&out, "p"); n != 1 || strings.Contains(out.String(), "unsignaled") {
		t.Errorf("%d: %s", n, out.String())
	}
	if _, err := os.Stat(r.file); err == nil {
		t.Error("the file is there")
	}
	var none *strictReport
	if none.end(&out, "p") != 0 || len(none.env([]string{"A"})) != 1 {
		t.Error("without strict mode something happens")
	}
	none.remove()
}

// TestStrictMistakes: a file that cannot be written is told before the program
// runs, and rules without "=" are not taken for a program.
func TestStrictMistakes(t *testing.T) {
	t.Parallel()
	f := strictFlags{rules: "on", json: filepath.Join(t.TempDir(), "none", "x")}
	if r, err := f.begin(); err == nil {
		r.remove()
		t.Error("a file in no directory is no error")
	}
	why := notRun("all", exec.ErrNotFound)
	for name, want := range map[string]bool{"all": true, "on,-fork": true, "prog": false, "": false} {
		err := f.meant(name, why)
		if got := strings.Contains(err.Error(), "--strict="+name); got != want || !errors.Is(err, exec.ErrNotFound) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if f.rules = "all"; f.meant("all", why) != why {
		t.Error("rules that were given are not missed")
	}
}
