package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/lab"
)

// The execution traces of all ranks are read from files beside the scenario,
// and what is printed is whole without them.
func TestSimExecutionTraces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// A trace of one node that computes for 7 us: metadata, then number 1,
	// type 4, duration 7.
	trace := []byte{3, 10, 1, 'v', 6, 8, 1, 24, 4, 56, 7}
	text := strings.Replace(tinyScenario, "kind = \"incast\"\nsenders = 4\nbytes = \"64KiB\"", "kind = \"chakra\"\nfile = \"et.%d.et\"", 1)
	file := filepath.Join(dir, "mine.toml")
	err := os.WriteFile(file, []byte(text), 0o600)
	for rank := range 3 {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprintf("et.%d.et", rank)), trace, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	check := func(args ...string) {
		t.Helper()
		code, out, errs := runSim(t, append([]string{file, "--json"}, args...)...)
		var s lab.Summary
		if err := json.Unmarshal([]byte(out), &s); code != exitOK || err != nil || s.Completed != 1 || s.LastUs != 7 {
			t.Errorf("exit status %d, %v, %+v\n%s", code, err, s, errs)
		}
	}
	check()
	code, whole, _ := runSim(t, file, "--print")
	if err := errors.Join(os.WriteFile(file, []byte(whole), 0o600), os.Remove(filepath.Join(dir, "et.0.et"))); code != exitOK || err != nil {
		t.Fatal(code, err)
	}
	check("--cores", "2")
	if code, out, errs := runSim(t, file, "--seeds", "1-2"); code != exitOK || !strings.Contains(out, "2 runs") {
		t.Errorf("exit status %d\n%s%s", code, out, errs)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := runSim(t, file); code == exitOK || !strings.Contains(errs, "traffic.0.list") || !strings.Contains(errs, "et.0.et") {
		t.Errorf("without the first trace: exit status %d, %s", code, errs)
	}
	if err := os.WriteFile(filepath.Join(dir, "et.0.et"), trace[:9], 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := runSim(t, file); code == exitOK || !strings.Contains(errs, "traffic 1, chakra: chakra: trace of rank 0: byte 4: a message is cut off") {
		t.Errorf("with a trace that is cut off: exit status %d, %s", code, errs)
	}
}
