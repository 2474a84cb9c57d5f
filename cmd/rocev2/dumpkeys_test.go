package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/verbs"
)

// A capture of a secured connection, made by two devices of this software: CM
// and the handshake in clear, then 38 sealed packets.
const (
	securedCapture = "../../observe/dissect/testdata/secured.pcapng"
	securedKeys    = "../../observe/dissect/testdata/secured.keys"
)

// Without keys, dump says what can be seen, and how to see more.
func TestDumpSealed(t *testing.T) {
	t.Parallel()
	r := invoke(t.Context(), "dump", securedCapture)
	if r.code != 0 || len(linesOf(r.out)) != 52 || strings.Count(r.out, "SEALED GCM-128") != 38 || strings.Contains(r.out, "malformed") {
		t.Errorf("%d\n%s", r.code, r.out)
	}
	const want = "38 of 38 sealed packets are not opened; 38 have no key, SPI 0x00aebdaf, 0x00444247; --keys FILE opens them with a key log\n"
	if r.err != want {
		t.Errorf("%q, want %q", r.err, want)
	}
	if r := invoke(t.Context(), "dump", securedCapture, "--connections"); strings.Count(r.out, "\n") != 2 || !strings.Contains(r.out, "disconnected tcp:7471, sealed") {
		t.Error(r.out)
	}
}

// With keys, all that dump does works as with packets in clear.
func TestDumpKeys(t *testing.T) {
	t.Parallel()
	r := invoke(t.Context(), "dump", securedCapture, "--keys", securedKeys)
	if r.code != 0 || r.err != "" || strings.Count(r.out, "[opened]") != 38 || strings.Contains(r.out, "SEALED") {
		t.Fatalf("%d, %s\n%s", r.code, r.err, r.out)
	}
	for filter, want := range map[string]int{"retransmitted": 3, "opened and kind=write": 5, "nak": 2, "spi=0x01aebdaf": 7, "protocol rdma and not sealed": 14} {
		if r := invoke(t.Context(), "dump", securedCapture, "--keys", securedKeys, "-f", filter); len(linesOf(r.out)) != want {
			t.Errorf("%s: %d lines, want %d\n%s", filter, len(linesOf(r.out)), want, r.out)
		}
	}
	r = invoke(t.Context(), "dump", securedCapture, "--keys", securedKeys, "--stats=json")
	var got struct {
		Sealed      map[string]int
		ICRC        struct{ Good, Bad, Unknown int }
		Connections []struct {
			Sealed   []struct{ Packets, Opened, Missing int }
			Requests []struct{ Messages, Completed, Missing int }
		}
	}
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatal(err)
	}
	c := got.Connections[0]
	if got.Sealed["opened"] != 38 || got.ICRC.Good != 52 || len(c.Sealed) != 2 || c.Sealed[0].Opened != 20 || c.Sealed[1].Missing != 1 ||
		c.Requests[0].Completed != 11 || c.Requests[0].Missing != 0 {
		t.Errorf("%+v", got)
	}
	if r := invoke(t.Context(), "dump", securedCapture, "--keys", securedKeys, "--chart", "-"); !strings.Contains(r.out, "asks for 1520 B") {
		t.Error(r.out)
	}
	r = invoke(t.Context(), "dump", securedCapture, "--keys", securedKeys, "--json", "-f", "frame 12")
	var fields map[string]any
	if err := json.Unmarshal([]byte(r.out), &fields); err != nil || fields["rocev2.psp.iv"] != "0x0000000000000001" || fields["rocev2.opened"] != true ||
		fields["rocev2.psp.spi"] != 11451823.0 || fields["infiniband.bth.psn"] != 1409411.0 || fields["udp.length"] != 92.0 {
		t.Errorf("%v: %s", err, r.out)
	}
}

// What is wrong with keys is said, and where.
func TestDumpKeyNotes(t *testing.T) {
	t.Parallel()
	keys, err := os.ReadFile(securedKeys)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(keys), "\n")
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"other":   {lines[0], "other has no key of sealed packets: no line begins with ROCEV2_PSP\n38 of 38 sealed packets are not opened; 38 have no key, SPI 0x00aebdaf, 0x00444247\n"},
		"partial": {lines[1], "20 of 38 sealed packets are not opened; 20 have no key, SPI 0x00444247\n"},
		"wrong": {strings.Replace(string(keys), " a9eb", " a9ec", 1),
			"18 of 38 sealed packets are not opened; for 18 there are keys of their SPI, and none fits\n"},
		"damaged": {strings.Replace(string(keys), "0x00444247@", "0x00444247 ", 1),
			"damaged:3: psp: a line with a key has three fields with a space between them: ROCEV2_PSP, SPI@ADDRESS and the key\n" +
				"20 of 38 sealed packets are not opened; 20 have no key, SPI 0x00444247\n"},
		"capture": {"\x0a\x0d\x0d\x0a\x00\xff", "capture has no key of sealed packets"},
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := invoke(t.Context(), "dump", securedCapture, "--keys", file)
		if got := strings.ReplaceAll(r.err, dir+string(filepath.Separator), ""); r.code != 0 || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %d, %q\nwant %q", name, r.code, got, c.want)
		}
		if strings.Contains(r.err, "eb2b53") || strings.Contains(r.err, "d4c57b") {
			t.Errorf("%s: a key is printed: %s", name, r.err)
		}
	}
	for _, file := range []string{filepath.Join(dir, "none"), dir} {
		if r := invoke(t.Context(), "dump", securedCapture, "--keys", file); r.code == 0 || !strings.Contains(r.err, "--keys") || !strings.Contains(r.err, file) {
			t.Errorf("%s: %d, %s", file, r.code, r.err)
		}
	}
}

// A live capture opens what is sealed, with keys that are written while it
// runs, and takes buffers of segmentation offload apart.
func TestDumpLiveSealed(t *testing.T) {
	t.Parallel()
	for range 20 {
		out, errs := dumpLiveSealed(t)
		if strings.Contains(errs, "packets were lost") {
			continue
		}
		if strings.Contains(out, "malformed") || strings.Contains(out, "BAD ICRC") || strings.Contains(out, "no key") || strings.Contains(out, "gap") ||
			!strings.Contains(out, "[opened]") {
			t.Errorf("%s%s", out, errs)
		}
		return
	}
	t.Error("each of 20 captures missed packets")
}

// dumpLiveSealed captures a secured connection, until it has ended.
func dumpLiveSealed(t *testing.T) (out, messages string) {
	t.Helper()
	server, client := freeAddress(), freeAddress()
	keys, err := os.Create(filepath.Join(t.TempDir(), "keys.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	errs := &waiting{ready: make(chan struct{}), wrote: make(chan struct{}, 1)}
	shown := &waiting{ready: make(chan struct{}), wrote: make(chan struct{}, 1)}
	done := make(chan int, 1)
	go func() {
		code := run(ctx, []string{"dump", "-i", "lo", "--keys", keys.Name(), "-f", "host " + server}, streams{in: strings.NewReader(""), out: shown, err: errs})
		errs.Write([]byte("ended\n"))
		done <- code
	}()
	for !strings.Contains(errs.String(), "capturing RoCEv2 on lo") {
		if <-errs.wrote; strings.Contains(errs.String(), "ended") {
			code := <-done
			if runtime.GOOS != "linux" {
				t.Skip("live captures are there on Linux only: run it there")
			}
			if code == 1 && strings.Contains(errs.String(), "CAP_NET_RAW") {
				t.Skip("this user may not capture packets (run as root, or with CAP_NET_RAW)")
			}
			t.Fatal(errs.String())
		}
	}
	securedEcho(t, server, client, keys)
	for late := time.After(2 * time.Minute); !strings.Contains(shown.String(), "CM DREP"); {
		select {
		case <-shown.wrote:
			continue
		case <-late:
		}
		break
	}
	stop()
	if code := <-done; code != 0 {
		t.Errorf("%d: %s", code, errs.String())
	}
	return shown.String(), errs.String()
}

// securedEcho has messages go forth and back on a secured connection, whose
// client writes its keys.
func securedEcho(t *testing.T, server, client string, keys *os.File) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	fatal := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a := testcert.New(t)
	devs := [2]*verbs.Device{openSealing(t, server), openSealing(t, client)}
	lc := rdma.ListenConfig{Device: devs[0], TLS: &tls.Config{Certificates: []tls.Certificate{a.Issue(t, "server", server)}}}
	l, err := lc.Listen(ctx, server+":7471")
	fatal(err)
	defer l.Close()
	go func() {
		c, err := l.Accept(ctx)
		if err != nil {
			return
		}
		for m, err := c.RecvMsg(ctx); err == nil; m, err = c.RecvMsg(ctx) {
			c.Send(ctx, m.Bytes())
			m.Release()
		}
		c.Close()
	}()
	d := rdma.Dialer{Device: devs[1], TLS: &tls.Config{RootCAs: a.Pool, KeyLogWriter: keys}}
	c, err := d.Dial(ctx, server+":7471")
	fatal(err)
	text := bytes.Repeat([]byte("sealed "), 6000)
	for range 5 {
		fatal(c.Send(ctx, text))
		m, err := c.RecvMsg(ctx)
		fatal(err)
		if !bytes.Equal(m.Bytes(), text) {
			t.Error("other bytes have come back")
		}
		m.Release()
	}
	fatal(c.Close())
}

func openSealing(t *testing.T, addr string) *verbs.Device {
	t.Helper()
	dev, err := verbs.OpenAddr(netip.MustParseAddr(addr), verbs.Config{Sealing: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// What was opened can be written as packets in clear, which need no key.
func TestDumpPlain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "plain.pcapng")
	if r := invoke(t.Context(), "dump", securedCapture, "--keys", securedKeys, "-w", file, "--plain", "-f", "host 198.18.0.4"); r.code != 0 || !strings.HasPrefix(r.err, "52 packets written") {
		t.Fatalf("%d, %s", r.code, r.err)
	}
	was, is := invoke(t.Context(), "dump", securedCapture, "--keys", securedKeys), invoke(t.Context(), "dump", file)
	if want := strings.ReplaceAll(was.out, "  [opened]", ""); is.out != want || is.err != "" {
		t.Errorf("%s\nwant\n%s", is.out, want)
	}
	if r := invoke(t.Context(), "dump", securedCapture, "--plain"); r.code != 2 || !strings.Contains(r.err, "--write") {
		t.Errorf("%d, %s", r.code, r.err)
	}
}
