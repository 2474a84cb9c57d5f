package dissect_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/internal/captures"
	"github.com/gosoftroce/rocev2/observe/dissect"
	"github.com/gosoftroce/rocev2/rdma/rdmanet/rsocket"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

const dissector = "../../packaging/wireshark/rocev2.lua"

// luaFields returns the names of the fields of Wireshark's dissector.
func luaFields(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile(dissector)
	must(t, err)
	for _, m := range regexp.MustCompile(`ProtoField\.\w+\("(rocev2\.[a-z0-9._]+)"`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1])
	}
	for _, m := range regexp.MustCompile(`\{ "([a-z.]+)", "[A-Z][a-z]+" \}`).FindAllStringSubmatch(string(text), -1) {
		for _, part := range []string{"addr", "key", "length"} {
			names = append(names, "rocev2.rsockets."+m[1]+"."+part)
		}
	}
	if len(names) < 30 {
		t.Fatalf("%d fields of the dissector found: %q", len(names), names)
	}
	return names
}

// sameInWireshark compares what Wireshark's dissector says of a capture with
// what Fields does. It returns the names of the fields that packets have.
func sameInWireshark(t *testing.T, file string) (used []string) {
	t.Helper()
	names := luaFields(t)
	rows := captures.Tshark(t, file, []string{"-X", "lua_script:" + dissector}, names)
	all := fieldsOf(t, file)
	if len(rows) != len(all) {
		t.Fatalf("tshark has %d frames, the capture %d packets", len(rows), len(all))
	}
	for i, row := range rows {
		for j, name := range names {
			want := ""
			if v, ok := all[i][name]; ok {
				want, used = normal(v), append(used, name)
			}
			if got := normal(row[j]); got != want {
				t.Errorf("%s, frame %d: tshark says %s is %q, want %q", filepath.Base(file), i+1, name, got, want)
			}
		}
	}
	return used
}

// writeCapture writes the frames to a file.
func (c *traffic) writeCapture(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "made.pcapng")
	f, err := os.Create(file)
	must(t, err)
	defer f.Close()
	w := dissect.NewWriter(f)
	for i := range c.frames {
		must(t, w.Write(&c.frames[i]))
	}
	must(t, w.Flush())
	return file
}

// unusual is what peers of another kind may send: IPv6, slots that are read
// big-endian, a protocol that only one side speaks, and what is malformed.
func unusual() *traffic {
	c := &traffic{}
	block := (&rsocket.Block{BigEndian: true, Credits: 4, Slots: rsocket.Memory{Addr: 1 << 60, Key: 7, Length: 2}, Ring: rsocket.Memory{Length: 8}}).AppendTo(nil)
	hello := append([]byte("RMSG\x01\x01\x00\x08\x00\x01\x00\x00"), 0, 0, 0, 0)
	for i, p := range [][2][]byte{{block, block}, {hello, hello}, {hello, block}, {nil, hello}} {
		id, qpn := 0x80000000+10*mad.CommID(i), rocev2.QPN(0x20+i)
		r := request(id)
		r.LocalQPN = qpn + 0x100
		r.Private = append(r.Private, p[0]...)
		c.mad(six1, six2, r)
		c.mad(six2, six1, &mad.REP{LocalID: id + 1, RemoteID: id, LocalQPN: qpn, StartingPSN: 100, Private: p[1]})
		for n, send := range []struct {
			op      rocev2.Opcode
			imm     uint32
			payload string
		}{
			{rocev2.RCSendOnlyImm, 1<<28 | 3, "\x00\x02ab\x00\x01c"},
			{rocev2.RCSendOnlyImm, 1 << 28, "\x00\x02ab\x00\x09c"},
			{rocev2.RCSendOnlyImm, 1 << 28, ""},
			{rocev2.RCSendOnlyImm, 3 << 28, "\x01"},
			{rocev2.RCSendOnlyImm, 3 << 28, "\x07\x00\x12\x34name"},
			{rocev2.RCSendOnlyImm, 4 << 28, "\x02\x03\x00\x01\xff\xff\x01\x00"},
			{rocev2.RCSendOnlyImm, 4 << 28, "\x02"},
			{rocev2.RCSendOnlyImm, 9 << 28, ""},
			{rocev2.RCSendFirst, 0, string(make([]byte, 1024))},
			{rocev2.RCSendLastImm, 1<<28 | 9, "abc"},
			{rocev2.RCWriteOnlyImm, 4<<29 | 7, "\x00\x00\x00\x00\x00\x00\x12\x34\x00\x00\x00\x05\x00\x00\x10\x00"},
			{rocev2.RCWriteOnlyImm, 4<<29 | 1<<28, ""},
			{rocev2.RCWriteOnlyImm, 6 << 29, "x"},
			{rocev2.RCWriteOnlyImm, 3 << 29, "xyz"},
			{rocev2.RCWriteOnlyImm, 7<<29 | 2, ""},
			{rocev2.RCWriteOnlyImm, 7<<29 | 9, ""},
			{rocev2.SelectiveAck, 0, "\xff\xff\x01\x80"},
			{rocev2.SelectiveAck, 0, ""},
		} {
			c.packet(six1, six2, rocev2.Packet{
				BTH:  rocev2.BTH{Opcode: send.op, DestQPN: qpn, PSN: rocev2.PSN(100 + n), Solicited: n%2 == 0},
				RETH: rocev2.RETH{Length: uint32(len(send.payload))}, AETH: rocev2.AETH{Syndrome: rocev2.Syndrome(5 + n)}, Imm: send.imm, Payload: []byte(send.payload),
			})
		}
	}
	return c
}

// Wireshark's dissector says what rocev2 dump says, of real connections and of
// unusual ones, and every field of it occurs.
func TestTsharkWithDissector(t *testing.T) {
	t.Parallel()
	a, b := messages(t), streams(t)
	a.close()
	b.close()
	var used []string
	for _, file := range []string{a.file, b.file, unusual().writeCapture(t)} {
		used = append(used, sameInWireshark(t, file)...)
	}
	for _, name := range luaFields(t) {
		if !slices.Contains(used, name) {
			t.Errorf("no packet has %s", name)
		}
	}
}

// Fields that the dissector has are those that the analysis gives, also where
// no tshark is installed.
func TestWiresharkFieldsExist(t *testing.T) {
	t.Parallel()
	a, b := messages(t), streams(t)
	all := append(a.close(), b.close()...)
	made, _ := unusual().run(t)
	all = append(all, made...)
	for _, name := range luaFields(t) {
		if !slices.ContainsFunc(all, func(s seen) bool {
			return slices.ContainsFunc(s.fields, func(f dissect.Field) bool { return f.Name == name })
		}) {
			t.Errorf("rocev2 dump never says %s", name)
		}
	}
}
