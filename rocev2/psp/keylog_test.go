package psp

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func TestKeyLog(t *testing.T) {
	t.Parallel()
	key := []byte("0123456789abcdefghijklmnopqrstuv")
	for _, c := range []struct {
		k    LoggedKey
		want string
	}{
		{LoggedKey{0x05000011, netip.MustParseAddr("192.0.2.1"), key[:16]}, "ROCEV2_PSP 0x05000011@192.0.2.1 30313233343536373839616263646566\n"},
		{LoggedKey{0x11, netip.MustParseAddr("fe80::1%eth0"), key},
			"ROCEV2_PSP 0x00000011@fe80::1 303132333435363738396162636465666768696a6b6c6d6e6f70717273747576\n"},
		{LoggedKey{0xffffffff, netip.MustParseAddr("::ffff:192.0.2.1"), key[:16]}, "ROCEV2_PSP 0xffffffff@192.0.2.1 30313233343536373839616263646566\n"},
	} {
		line := c.k.AppendTo(nil)
		if string(line) != c.want {
			t.Errorf("%q, want %q", line, c.want)
		}
		if len(line) > MaxKeyLogLine {
			t.Errorf("%d bytes", len(line))
		}
		for _, end := range []string{"", "\r"} {
			got, ours, err := ParseKeyLog(append(bytes.TrimSuffix(line, []byte("\n")), end...))
			if err != nil || !ours || got.SPI != c.k.SPI || got.Receiver != c.k.Receiver.Unmap().WithZone("") || !bytes.Equal(got.Key, c.k.Key) {
				t.Errorf("%q: %v, %v, %v", line, got, ours, err)
			}
		}
	}
}

func TestKeyLogErrors(t *testing.T) {
	t.Parallel()
	const key = "30313233343536373839616263646566"
	for _, c := range []struct {
		line string
		want error
	}{
		{"ROCEV2_PSP", errLogFields},
		{"ROCEV2_PSP ", errLogFields},
		{"ROCEV2_PSP 0x05000011@192.0.2.1", errLogFields},
		{"ROCEV2_PSP 0x05000011 " + key, errLogFields},
		{"ROCEV2_PSP 05000011@192.0.2.1 " + key, errLogSPI},
		{"ROCEV2_PSP 0x5000011@192.0.2.1 " + key, errLogSPI},
		{"ROCEV2_PSP 0x0500001g@192.0.2.1 " + key, errLogSPI},
		{"ROCEV2_PSP 0x00000000@192.0.2.1 " + key, errLogSPI},
		{"ROCEV2_PSP 0x+5000011@192.0.2.1 " + key, errLogSPI},
		{"ROCEV2_PSP 0x05000011@192.0.2.x " + key, errLogAddress},
		{"ROCEV2_PSP 0x05000011@fe80::1%eth0 " + key, errLogAddress},
		{"ROCEV2_PSP 0x05000011@192.0.2.1 " + key[2:], errLogKey},
		{"ROCEV2_PSP 0x05000011@192.0.2.1 " + key + " ", errLogKey},
		{"ROCEV2_PSP 0x05000011@192.0.2.1 zz" + key[2:], errLogKey},
	} {
		k, ours, err := ParseKeyLog([]byte(c.line))
		if !ours || !errors.Is(err, c.want) || k.Key != nil {
			t.Errorf("%q: %v, %v, want %v", c.line, ours, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), key[2:10]) {
			t.Errorf("the error has the key: %v", err)
		}
	}
	for _, line := range []string{"", "# a comment", "CLIENT_RANDOM 00 11", "ROCEV2_PSP2 a b", "ROCEV2_PSP\t0x05000011@192.0.2.1 " + key} {
		if _, ours, err := ParseKeyLog([]byte(line)); ours || err != nil {
			t.Errorf("%q: %v, %v", line, ours, err)
		}
	}
}

func TestKeyLogPrintsNoKey(t *testing.T) {
	t.Parallel()
	k := LoggedKey{5, netip.MustParseAddr("192.0.2.1"), []byte("0123456789abcdef")}
	text := fmt.Sprintf("%v %+v %#v %s %x %v", k, k, k, &k, k, []LoggedKey{k})
	if strings.Contains(text, "3031") || strings.Contains(text, "48 49") || strings.Contains(text, "0x30") || strings.Contains(text, "0123") {
		t.Error(text)
	}
}

// FuzzKeyLog: what can be read can be written, and is the same.
func FuzzKeyLog(f *testing.F) {
	f.Add([]byte("ROCEV2_PSP 0x05000011@192.0.2.1 30313233343536373839616263646566"))
	f.Add([]byte("ROCEV2_PSP 0xffffffff@::1 303132333435363738396162636465666768696a6b6c6d6e6f70717273747576\r"))
	f.Add([]byte("CLIENT_RANDOM 00 11"))
	f.Fuzz(func(t *testing.T, line []byte) {
		k, ours, err := ParseKeyLog(line)
		if !ours || err != nil {
			return
		}
		again, _, err := ParseKeyLog(bytes.TrimSuffix(k.AppendTo(nil), []byte("\n")))
		if err != nil || again.SPI != k.SPI || again.Receiver != k.Receiver || !bytes.Equal(again.Key, k.Key) {
			t.Fatalf("%q: %v, %v", line, again, err)
		}
	})
}
