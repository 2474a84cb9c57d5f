package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What top cannot do is told in words: flags by the usual status of mistakes, a
// daemon that does not answer by that of a failure.
func TestTopErrors(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--interval", "1ms"}, exitUsage, "it must be from 100ms"},
		{[]string{"--rows", "-1"}, exitUsage, "it must not be negative"},
		{[]string{"--table", "x"}, exitUsage, "there are devices, qps and programs"},
		{[]string{"--sort", "x"}, exitUsage, "has no column"},
		{[]string{"--daemon", "x/y"}, exitUsage, "HOST, HOST:PORT"},
		{[]string{"--token-file", token}, exitFailure, "on one line"},
		{[]string{"--token-file", "/no/such/file"}, exitFailure, "/no/such/file"},
		{[]string{"--once", "--daemon", "127.0.0.1:1"}, exitFailure, "rocev2d at http://127.0.0.1:1: "},
		{[]string{"x"}, exitUsage, "takes no arguments"},
	} {
		var out, errs strings.Builder
		if code := run(t.Context(), append([]string{"top"}, c.args...), streams{out: &out, err: &errs}); code != c.code || !strings.Contains(errs.String(), c.want) || out.Len() > 0 {
			t.Errorf("%q: status %d, %s%s", c.args, code, errs.String(), out.String())
		}
	}
}
