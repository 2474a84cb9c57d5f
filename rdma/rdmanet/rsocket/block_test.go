package rsocket

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// A block as rsockets of a little-endian host sends it, with its defaults: 384
// credits, a ring of 128 KiB.
const blockHex = "01 02 0180 000000 00" +
	"00007f0000001000 00000a01 00000002" +
	"00007f0000200000 00000b02 00010000"

func goldenBlock() (Block, []byte) {
	raw, _ := hex.DecodeString(strings.ReplaceAll(blockHex, " ", ""))
	return Block{
		IOMap: true, Credits: 384,
		Slots: Memory{0x7f0000001000, 0xa01, 2},
		Ring:  Memory{0x7f0000200000, 0xb02, 65536},
	}, raw
}

func TestBlock(t *testing.T) {
	t.Parallel()
	want, raw := goldenBlock()
	if got := want.AppendTo(bytes.Repeat([]byte{0xa5}, 3))[3:]; !bytes.Equal(got, raw) {
		t.Errorf("encoded\n%x, expected\n%x", got, raw)
	}
	padded := append(bytes.Clone(raw), make([]byte, 156)...) // as the private data of a REP
	if got, err := ParseBlock(padded); err != nil || got != want {
		t.Errorf("parsed %+v, %v", got, err)
	}
	all := want
	all.BigEndian, all.Features, all.IOMapSize = true, FeatureDrains, 3
	if got, err := ParseBlock(all.AppendTo(nil)); err != nil || got != all {
		t.Errorf("parsed %+v, %v", got, err)
	}
	for n := range raw {
		if _, err := ParseBlock(raw[:n]); !errors.Is(err, ErrBlock) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// What no side can work with is refused, by name.
func TestForgedBlocks(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(raw []byte){
		"version 0":   func(raw []byte) { raw[0] = 0 },
		"version 2":   func(raw []byte) { raw[0] = 2 },
		"0 credits":   func(raw []byte) { raw[2], raw[3] = 0, 0 },
		"1 slots":     func(raw []byte) { raw[23] = 1 },
		"-1 slots":    func(raw []byte) { copy(raw[20:], "\xff\xff\xff\xff") },
		"far slots":   func(raw []byte) { copy(raw[8:], "\xff\xff\xff\xff\xff\xff\xff\xf0") },
		"far ring":    func(raw []byte) { copy(raw[24:], "\xff\xff\xff\xff\xff\xff\xff\x00") },
		"all is 0xff": func(raw []byte) { copy(raw, bytes.Repeat([]byte{0xff}, BlockLen)) },
	} {
		_, raw := goldenBlock()
		change(raw)
		if b, err := ParseBlock(raw); !errors.Is(err, ErrBlock) {
			t.Errorf("%s: %+v, %v", want, b, err)
		}
	}
}

func FuzzBlock(f *testing.F) {
	_, raw := goldenBlock()
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, err := ParseBlock(raw)
		if err != nil {
			return
		}
		again, err := ParseBlock(b.AppendTo(nil))
		if err != nil || again != b {
			t.Errorf("%+v becomes %+v, %v", b, again, err)
		}
	})
}
