package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/verbs"
)

// exporting runs a listener with regions, and returns its address and the
// memory of the region data.
func exporting(t *testing.T) (host string, data []byte) {
	t.Helper()
	addr := freeAddress()
	dev, err := verbs.Open(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	data = make([]byte, 9<<20)
	for i := range data {
		data[i] = byte(i * i >> 5)
	}
	lc := rdma.ListenConfig{Device: dev}
	lc.Export("data", rdma.Region{Memory: data, Writable: true})
	lc.Export("fixed", rdma.Region{Memory: []byte("nothing but this")})
	lc.Export("secret", rdma.Region{Size: 64, Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}})
	l, err := lc.Listen(t.Context(), net.JoinHostPort(addr, strconv.Itoa(config.DefaultRegionsPort)))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			if _, err := l.Accept(context.Background()); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { l.Close() })
	return addr, data
}

func regionCLI(t *testing.T, in string, args ...string) result {
	t.Helper()
	var out, errs buffer
	code := run(t.Context(), append([]string{"region"}, args...), streams{in: strings.NewReader(in), out: &out, err: &errs})
	return result{code, out.String(), errs.String()}
}

// The commands do what they say, and refuse in words what is not possible.
func TestRegionCommands(t *testing.T) {
	t.Parallel()
	host, data := exporting(t)
	file := filepath.Join(t.TempDir(), "file")
	if r := regionCLI(t, "", "read", host+"/data", "-o", file); r.code != 0 || !strings.Contains(r.err, "9437184 bytes in") {
		t.Errorf("%+v", r)
	}
	if b, err := os.ReadFile(file); err != nil || !bytes.Equal(b, data) {
		t.Errorf("%d bytes: %v", len(b), err)
	}
	if r := regionCLI(t, "", "read", host+"/data", "--offset", "0x1000", "--length", "5KiB", "-q"); r.code != 0 || r.out != string(data[0x1000:0x1000+5<<10]) || r.err != "" {
		t.Errorf("%d bytes, %s", len(r.out), r.err)
	}
	if r := regionCLI(t, "", "read", host+"/fixed", "--hex"); !strings.Contains(r.out, "|nothing but this|") {
		t.Errorf("%+v", r)
	}
	if r := regionCLI(t, "some words", "write", host+":7470/data", "--offset", "77"); r.code != 0 || string(data[77:87]) != "some words" {
		t.Errorf("%+v, %q", r, data[77:87])
	}
	if r := regionCLI(t, "", "write", host+"/data", "-i", file, "-q"); r.code != 0 || r.err != "" || string(data[77:87]) == "some words" {
		t.Errorf("%+v", r)
	}
	clear(data[4096:4104])
	for i, args := range [][]string{{"add", host + "/data", "4096", "5"}, {"add", host + "/data", "4096", "--", "-1"}, {"cas", host + "/data", "4096", "4", "0xff"}, {"add", host + "/data", "4096", "0"}} {
		if r, want := regionCLI(t, "", args...), []string{"0\n", "5\n", "4\n", "255\n"}[i]; r.code != 0 || r.out != want {
			t.Errorf("%v: %+v, want %q", args, r, want)
		}
	}
	if r := regionCLI(t, "", "ls", host); r.code != 0 || r.out != "NAME           BYTES  ACCESS\ndata         9437184  read-write\nfixed             16  read-only\n" {
		t.Errorf("%q", r.out)
	}
	var list []map[string]any
	if r := regionCLI(t, "", "ls", host, "--json"); json.Unmarshal([]byte(r.out), &list) != nil || len(list) != 2 || list[0]["name"] != "data" || list[0]["access"] != "read-write" {
		t.Errorf("%+v", r)
	}
}

func TestRegionRefusals(t *testing.T) {
	t.Parallel()
	host, data := exporting(t)
	nobody := freeAddress()
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"read HOST", exitUsage, "names no region"},
		{"ls HOST/data", exitUsage, "the host alone"},
		{"ls", exitUsage, "takes HOST[:PORT], got 0 arguments"},
		{"jump HOST", exitUsage, "there are add, cas, ls, read, write"},
		{"read HOST/data --offset x", exitUsage, "0x1000 or 64KiB"},
		{"read HOST/data --offset -1", exitUsage, "0x1000 or 64KiB"},
		{"add HOST/data 8 many", exitUsage, "64 bits"},
		{"read HOST/data --timeout -1s", exitUsage, "must be positive"},
		{"read HOST/none", exitFailure, "shows the names"},
		{"read HOST/secret", exitFailure, "not on the list"},
		{"read HOST/data --offset 10MiB", exitFailure, "has 9437184 bytes: offset 10485760 is beyond its end"},
		{"read HOST/data --length 10MiB", exitFailure, "has 9437184 bytes"},
		{"write HOST/fixed", exitFailure, "read-only"},
		{"write HOST/data --persist", exitFailure, "no stable storage"},
		{"write HOST/data --offset 9437180", exitFailure, "longer than region data: 4 bytes were written"},
		{"write HOST/data -i /nonexistent", exitFailure, "no such file"},
		{"add HOST/fixed 0 1", exitFailure, "read-only"},
		{"add HOST/data 12 1", exitFailure, "multiple of 8"},
		{"cas HOST/data 8 1 2", exitFailure, "not swapped"},
		{"ls NOBODY", exitFailure, "no rocev2d serves regions at 127."},
	} {
		args := strings.ReplaceAll(strings.ReplaceAll(tt.args, "HOST", host), "NOBODY", nobody)
		r := regionCLI(t, "a line that is longer than what fits", strings.Fields(args)...)
		if r.code != tt.code || !strings.Contains(r.err, tt.want) {
			t.Errorf("%s: exit status %d, %q; want %d, %q", tt.args, r.code, r.err, tt.code, tt.want)
		}
	}
	if string(data[9437180:]) != "a li" {
		t.Errorf("%q", data[9437180:])
	}
}

// With the flags of the other commands the device can be chosen and watched.
func TestRegionWithDevice(t *testing.T) {
	t.Parallel()
	host, data := exporting(t)
	r := regionCLI(t, "", "read", host+"/data", "--length", "100000", "-d", freeAddress(), "--fault", "drop=2%", "--stats")
	if r.code != 0 || r.out != string(data[:100000]) || !strings.Contains(r.err, "rx_packets") {
		t.Errorf("exit status %d, %d bytes: %s", r.code, len(r.out), r.err)
	}
}
