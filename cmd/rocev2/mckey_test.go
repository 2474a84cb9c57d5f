package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// joining is a standard output that tells when a receiver has joined.
type joining struct {
	buffer
	ready chan struct{}
}

func (j *joining) Write(p []byte) (int, error) {
	n, err := j.buffer.Write(p)
	if bytes.Contains(p, []byte("mckey: joined")) {
		close(j.ready)
	}
	return n, err
}

// TestMckey runs a receiver and a sender over the loopback interface.
func TestMckey(t *testing.T) {
	t.Parallel()
	out, errs, done := &joining{ready: make(chan struct{})}, &buffer{}, make(chan int, 1)
	go func() {
		done <- run(t.Context(), strings.Fields("mckey -m 239.77.0.3 --timeout 60s -b "+freeAddress()), streams{out: out, err: errs})
	}()
	select {
	case <-out.ready:
	case code := <-done:
		t.Fatalf("the receiver ends with %d: %s", code, errs.String())
	}
	s := invoke(t.Context(), strings.Fields("mckey -m 239.77.0.3 -s -o --json --timeout 60s -b "+freeAddress())...)
	if code := <-done; code != 0 || s.code != 0 {
		t.Fatalf("receiver %d: %s; sender %d: %s", code, errs.String(), s.code, s.err)
	}
	const want = "mckey: starting server\nmckey: joining\nmckey: joined dgid: ::ffff:239.77.0.3 mlid 0x0 sl 0\n" +
		"receiving data transfers\ndata transfers complete\ntest complete\nreturn status 0\n"
	if out.String() != want {
		t.Errorf("the receiver prints\n%s", out.String())
	}
	var v struct {
		Tool, Role string
		Messages   int
	}
	if err := json.Unmarshal([]byte(s.out), &v); err != nil || v.Tool != "mckey" || v.Role != "sender" || v.Messages != 10 {
		t.Errorf("%v: %+v of %s", err, v, s.out)
	}
}

func TestMckeyUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"mckey":                                        "-m is missing",
		"mckey -m 192.0.2.1 -b 127.94.3.17":            "no multicast address",
		"mckey -m x":                                   "not an address",
		"mckey -m 0.0.0.0":                             "nothing assigns groups",
		"mckey -M ff05::1":                             "requires binding to source address",
		"mckey -M ff05::1 -m 239.0.0.1":                "-m and -M",
		"mckey -m 239.0.0.1 -p 2":                      "no IPoIB",
		"mckey -m 239.0.0.1 -p 7":                      "0x0111",
		"mckey -m 239.0.0.1 -l":                        "-l, --no-loopback: the host brings",
		"mckey -m 239.0.0.1 -C 0":                      "-C 0: it must be at least 1",
		"mckey -m 239.0.0.1 -S 5000 -b 127.94.3.18":    "larger than active mtu 4096",
		"mckey -m 239.0.0.1 -o -b 127.94.3.19":         "does not receive",
		"mckey -m 239.0.0.1 -b 127.0.0.1 -d 127.0.0.2": "both name the device",
		"mckey -m 239.0.0.1 --timeout -1s":             "positive",
		"mckey -m 239.0.0.1 --idle-timeout 0s":         "positive",
		"mckey x":                                      "no arguments",
	} {
		if r := invoke(t.Context(), strings.Fields(args)...); r.code != exitUsage || !strings.Contains(r.err, want) || r.out != "" {
			t.Errorf("rocev2 %s: exit status %d, %q, %q; expected status 2 and %q", args, r.code, r.err, r.out, want)
		}
	}
}
