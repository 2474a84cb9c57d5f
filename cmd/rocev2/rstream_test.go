package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRstream(t *testing.T) {
	t.Parallel()
	s := cmServe(t, "rstream -b @ -S 1000 -C 10 -I 20 -T v -T a")
	c := s.client(t, "rstream -s @ -S 1000 -C 10 -I 20 -T verify -B 64K")
	r := s.result()
	for role, r := range map[string]result{"client": c, "server": r} {
		lines := strings.Split(strings.TrimSpace(r.out), "\n")
		if r.code != 0 || len(lines) != 2 || lines[0] != rstreamHeader || !strings.HasPrefix(lines[1], "custom    1000    10      20      390k    ") {
			t.Errorf("the %s ends with %d: %s%s", role, r.code, r.out, r.err)
		}
	}
}

func TestRstreamJSON(t *testing.T) {
	t.Parallel()
	s := cmServe(t, "rstream -b @ -S 100 -C 1 -I 2 --json")
	c := s.client(t, "rstream -s @ -S 100 -C 1 -I 2 --json --fault drop=2%")
	for role, r := range map[string]result{"client": c, "server": s.result()} {
		var v struct {
			Role  string
			Tests []struct{ Bytes uint64 }
		}
		if err := json.Unmarshal([]byte(r.out), &v); err != nil || r.code != 0 || v.Role != role || len(v.Tests) != 1 || v.Tests[0].Bytes != 400 {
			t.Errorf("the %s ends with %d: %v: %s%s", role, r.code, err, r.out, r.err)
		}
	}
}

func TestRcopy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	if err := os.WriteFile(source, []byte(strings.Repeat("text", 1000)), 0o644); err != nil {
		t.Fatal(err)
	}
	s := cmServe(t, "rcopy -d @ --clients 2 --root "+dir)
	for _, destination := range []string{"one", "/two"} {
		if c := s.client(t, "rcopy "+source+" @:"+destination); c.code != 0 || !strings.HasPrefix(c.out, "4000 bytes in ") {
			t.Errorf("the client ends with %d: %s%s", c.code, c.out, c.err)
		}
		got, err := os.ReadFile(filepath.Join(dir, destination))
		if err != nil || len(got) != 4000 {
			t.Errorf("%s: %d bytes, %v", destination, len(got), err)
		}
	}
	if r := s.result(); r.code != 0 || !strings.Contains(r.out, "one: 4000 bytes from ") || !strings.Contains(r.out, "two: 4000 bytes from ") {
		t.Errorf("the server ends with %d: %s%s", r.code, r.out, r.err)
	}
}

func TestStreamToolsMisuse(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"rstream -S 0":                 "-S 0: it must be at least 1",
		"rstream -S x":                 "-S x",
		"rstream -C 0":                 "-C 0: it must be at least 1",
		"rstream -T s":                 "no TCP sockets",
		"rstream -T q":                 "the options are",
		"rstream -p 70000":             "70000",
		"rcopy onlysource":             "1 arguments",
		"rcopy a :b":                   "there is no server",
		"rcopy a [::1":                 "write [address]:destination",
		"rcopy --clients -1":           "must not be negative",
		"rcopy /nonexistent 127.0.0.1": "no such file",
	} {
		if r := invoke(t.Context(), append(strings.Fields(args), "--timeout", "5s", "-d", freeAddress())...); r.code == 0 || !strings.Contains(r.err, want) {
			t.Errorf("%s: %d %s", args, r.code, r.err)
		}
	}
}

func TestSplitTarget(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][2]string{
		"host":             {"host", ""},
		"host:/a/b":        {"host", "/a/b"},
		"192.0.2.1:x:y":    {"192.0.2.1", "x:y"},
		"2001:db8::1":      {"2001:db8::1", ""},
		"[2001:db8::1]:/a": {"2001:db8::1", "/a"},
		"[fe80::1%eth0]":   {"fe80::1%eth0", ""},
	} {
		server, destination, err := splitTarget(in)
		if err != nil || server != want[0] || destination != want[1] {
			t.Errorf("%s is %q and %q, %v", in, server, destination, err)
		}
	}
}
