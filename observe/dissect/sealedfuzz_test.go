package dissect_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/observe/dissect"
	"github.com/gosoftroce/rocev2/rocev2/psp"
)

// withSecrets returns a capture as pcapng, with a key log in front of it as
// Wireshark's editcap --inject-secrets writes it.
func withSecrets(t testing.TB, c *traffic, log string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := dissect.NewWriter(&b)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	padded := log + strings.Repeat("\x00", -len(log)&3)
	length := uint32(20 + len(padded))
	block := le.AppendUint32(nil, 10)
	block = le.AppendUint32(block, length)
	block = le.AppendUint32(block, 0x544c534b)
	block = le.AppendUint32(block, uint32(len(log)))
	block = append(block, padded...)
	b.Write(le.AppendUint32(block, length))
	for i := range c.frames {
		if err := w.Write(&c.frames[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestSecretsOfCapture: a capture that has its keys itself needs no key log.
// Secrets of another kind, and those that are damaged, harm nothing.
func TestSecretsOfCapture(t *testing.T) {
	t.Parallel()
	c, log := conversation(t)
	for end := range 4 { // lengths that are padded
		whole := withSecrets(t, c, log+strings.Repeat("#", end))
		for name, b := range map[string][]byte{
			"keys":             whole,
			"of another kind":  bytes.Replace(whole, []byte("KSLT"), []byte("NGWW"), 1),
			"beyond the block": bytes.Replace(whole, []byte("KSLT"), []byte("KSLT\xff\xff\xff\x00"), 1),
		} {
			capture, err := dissect.Open(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			opened := 0
			for err == nil {
				var p *dissect.Packet
				if p, err = capture.Next(); err == nil && p.Sealed.Opened {
					opened++
				}
			}
			switch {
			case name == "keys" && opened != 7, name == "of another kind" && opened != 0:
				t.Errorf("%s: %d packets were opened", name, opened)
			case name == "beyond the block" && !strings.Contains(err.Error(), "damaged"):
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// FuzzSealed: neither a sealed packet nor a key log panics; nothing opens with
// another key than its own.
func FuzzSealed(f *testing.F) {
	s := newSealer(f, qpB, psp.GCM128)
	good := s.seal(hostA, hostB, sendTo(1, "text"))
	f.Add(good, []byte(s.line(hostB)), uint16(len(good)))
	f.Add(bytes.Repeat(good, 3), []byte("ROCEV2_PSP x\nROCEV2_PSP 0x00000020@::1 00\n"), uint16(40))
	f.Add(newSealer(f, 0x80000020, psp.GMAC256).seal(hostA, hostB, sendTo(1, "text")), []byte{}, uint16(60))
	f.Fuzz(func(t *testing.T, b, log []byte, length uint16) {
		if len(b) > 1<<15 {
			return
		}
		c := &traffic{}
		for _, cut := range []int{len(b), min(len(b), int(length))} {
			ip := datagram(hostA, hostB, 7, b)
			c.add(dissect.LinkRaw, ip[:28+cut])
			c.frames[len(c.frames)-1].Length = len(ip)
			c.add(dissect.LinkRaw, datagram(hostB, hostA, 8, b[:cut]))
		}
		capture := dissect.New(c, dissect.Limits{Connections: 3, Memory: 4096})
		capture.Keys().Add(log, "log")
		if capture.Keys().Len() > len(log)/30 {
			t.Fatalf("%d keys from %d bytes", capture.Keys().Len(), len(log))
		}
		showAll(t, capture)
	})
}
