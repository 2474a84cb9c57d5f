package dissect_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	gplayers "github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"github.com/gosoftroce/rocev2/observe/dissect"
)

// frames reads a file to its end.
func frames(t *testing.T, r io.Reader) (all []dissect.Frame) {
	t.Helper()
	s, err := dissect.OpenFile(r)
	if err != nil {
		t.Fatal(err)
	}
	for {
		var f dissect.Frame
		if err := s.Next(&f); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		f.Data = bytes.Clone(f.Data)
		all = append(all, f)
	}
}

// Both formats, in both byte orders and resolutions, give what was written.
func TestFormats(t *testing.T) {
	t.Parallel()
	at := time.Unix(1700000000, 123456000).UTC()
	data := []byte("some frame")
	info := gopacket.CaptureInfo{Timestamp: at, CaptureLength: len(data), Length: 2000}
	var micro, nano, ng, ours bytes.Buffer
	w := pcapgo.NewWriter(&micro)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(w.WriteFileHeader(65536, gplayers.LinkTypeEthernet))
	check(w.WritePacket(info, data))
	n := pcapgo.NewWriterNanos(&nano)
	check(n.WriteFileHeader(65536, gplayers.LinkTypeEthernet))
	check(n.WritePacket(info, data))
	g, err := pcapgo.NewNgWriter(&ng, gplayers.LinkTypeEthernet)
	check(err)
	info.InterfaceIndex = 0
	check(g.WritePacket(info, data))
	check(g.Flush())
	own := dissect.NewWriter(&ours)
	check(own.Write(&dissect.Frame{Time: at, Link: dissect.LinkEthernet, Data: data, Length: 2000}))
	check(own.Flush())
	for name, b := range map[string][]byte{
		"pcap": micro.Bytes(), "pcap ns": nano.Bytes(), "pcap big endian": swapped(micro.Bytes()), "pcapng": ng.Bytes(), "own": ours.Bytes(),
		"two sections": append(bytes.Clone(ours.Bytes()), ours.Bytes()...),
	} {
		got := frames(t, bytes.NewReader(b))
		want := 1
		if name == "two sections" {
			want = 2
		}
		if len(got) != want {
			t.Errorf("%s: %d frames", name, len(got))
			continue
		}
		for _, f := range got {
			if !f.Time.Equal(at) || f.Link != dissect.LinkEthernet || string(f.Data) != string(data) || f.Length != 2000 {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
	// gopacket reads what Writer wrote.
	r, err := pcapgo.NewNgReader(&ours, pcapgo.DefaultNgReaderOptions)
	check(err)
	b, ci, err := r.ReadPacketData()
	if err != nil || string(b) != string(data) || !ci.Timestamp.Equal(at) || r.LinkType() != gplayers.LinkTypeEthernet {
		t.Errorf("gopacket reads %q of %v, %v", b, ci, err)
	}
}

// swapped changes the byte order of a pcap file with one record.
func swapped(b []byte) []byte {
	le, be := binary.LittleEndian, binary.BigEndian
	out := bytes.Clone(b)
	be.PutUint32(out, le.Uint32(b))
	be.PutUint16(out[4:], le.Uint16(b[4:]))
	be.PutUint16(out[6:], le.Uint16(b[6:]))
	for i := 8; i < 40; i += 4 {
		be.PutUint32(out[i:], le.Uint32(b[i:]))
	}
	return out
}

// What is wrong with a file is said, with its place.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	golden, err := os.ReadFile(filepath.Join(golden, "rping.pcap"))
	if err != nil {
		t.Fatal(err)
	}
	var ng bytes.Buffer
	w := dissect.NewWriter(&ng)
	if err := errors.Join(w.Write(&dissect.Frame{Link: dissect.LinkRaw, Data: []byte("data")}), w.Flush()); err != nil {
		t.Fatal(err)
	}
	change := func(b []byte, at int, v uint32) []byte {
		b = bytes.Clone(b)
		binary.LittleEndian.PutUint32(b[at:], v)
		return b
	}
	for want, b := range map[string][]byte{
		"empty":                         nil,
		"neither pcap nor pcapng":       []byte("#!/bin/sh\n"),
		"gzip":                          {0x1f, 0x8b, 8, 0},
		"zstd":                          {0x28, 0xb5, 0x2f, 0xfd},
		"version 9 of pcap":             change(golden, 4, 9),
		"byte 40: a record of 4294":     change(golden, 32, 0xffffffff),
		"byte 100: the capture ends":    golden[:100],
		"byte 30: the capture ends":     golden[:30],
		"without byte order":            change(ng.Bytes(), 8, 0),
		"version 7 of pcapng":           change(ng.Bytes(), 12, 7),
		"type 1 with length 8":          change(ng.Bytes(), 32, 8),
		"type 1 with length 4294967280": change(ng.Bytes(), 32, 0xfffffff0),
		"type 6 with length 16":         change(ng.Bytes(), 64, 16),
		"of interface 5":                change(ng.Bytes(), 68, 5),
		"a frame of 65536 bytes in":     change(ng.Bytes(), 80, 65536),
	} {
		c, err := dissect.Open(bytes.NewReader(b))
		for err == nil {
			_, err = c.Next()
		}
		var file *dissect.FileError
		if !errors.As(err, &file) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A time stamp may have any resolution that fits, and an offset.
func TestTimeResolution(t *testing.T) {
	t.Parallel()
	build := func(options ...byte) []byte {
		var b bytes.Buffer
		w := dissect.NewWriter(&b)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		le := binary.LittleEndian
		out := b.Bytes()
		idb := append(le.AppendUint32(nil, 101), 0, 0, 0, 0)
		idb = append(append(idb, options...), 0, 0, 0, 0)
		out = le.AppendUint32(out, 1)
		out = le.AppendUint32(out, uint32(12+len(idb)))
		out = le.AppendUint32(append(out, idb...), uint32(12+len(idb)))
		for _, v := range []uint32{6, 32, 0, 3, 1 << 31, 0, 0, 32} {
			out = le.AppendUint32(out, v)
		}
		return out
	}
	stamp := uint64(3)<<32 | 1<<31
	for _, c := range []struct {
		options []byte
		want    time.Time
	}{
		{nil, time.UnixMicro(int64(stamp))},
		{[]byte{9, 0, 1, 0, 9, 0, 0, 0}, time.Unix(0, int64(stamp))},
		{[]byte{9, 0, 1, 0, 0x80 + 32, 0, 0, 0}, time.Unix(3, 5e8)},
		{[]byte{9, 0, 1, 0, 0x80 + 32, 0, 0, 0, 14, 0, 8, 0, 100, 0, 0, 0, 0, 0, 0, 0}, time.Unix(103, 5e8)},
		{[]byte{9, 0, 1, 0, 0x80 + 63, 0, 0, 0}, time.Unix(0, 1)},
	} {
		got := frames(t, bytes.NewReader(build(c.options...)))
		if len(got) != 1 || !got[0].Time.Equal(c.want) {
			t.Errorf("% x: %v, want %v", c.options, got[0].Time, c.want)
		}
	}
	for _, res := range []byte{20, 0x80 + 64, 0xff} {
		if _, err := dissect.Open(bytes.NewReader(build(9, 0, 1, 0, res, 0, 0, 0))); err != nil {
			t.Error(err)
			continue
		}
		c, _ := dissect.Open(bytes.NewReader(build(9, 0, 1, 0, res, 0, 0, 0)))
		if _, err := c.Next(); err == nil || !strings.Contains(err.Error(), "too fine") {
			t.Errorf("resolution %#x: %v", res, err)
		}
	}
}
