package record_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/observe/dissect"
)

// sentBySwitch adds up the frames of a capture that the switch has sent, as
// they are on the wire.
func sentBySwitch(t *testing.T, capture []byte, each func(*dissect.Frame)) (wire uint64) {
	t.Helper()
	source, err := dissect.OpenFile(bytes.NewReader(capture))
	if err != nil {
		t.Fatal(err)
	}
	var f dissect.Frame
	for {
		err := source.Next(&f)
		if errors.Is(err, io.EOF) {
			return wire
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Data) > f.Length {
			t.Fatalf("%d bytes of %d", len(f.Data), f.Length)
		}
		if f.Data[6] == 2 && f.Data[7] == 1 { // sent by the switch
			wire += uint64(f.Length) + 24 // FCS, preamble and gap
			each(&f)
		}
	}
}

// What switches cut off packets, or add to them, is in the lengths of a
// capture: they are those that the result counts, to the byte.
func TestLengthsThatSwitchesChange(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"trim":   "[network.switch]\ntrim = true\n",
		"int":    "[network.switch]\nint = true\n",
		"both":   "[network.switch]\ntrim = true\nint = true\n",
		"hpcc":   "[adapter]\ncontrol = \"hpcc\"\n",
		"credit": "[network.switch]\ncredit = true\n",
	} {
		text = strings.Replace(lossy, "[[traffic]]", text+"[[traffic]]", 1)
		text = strings.Replace(text, "loss = 0.002\n", "queue_max = \"30KB\"\n", 1)
		if name == "credit" {
			text = strings.Replace(strings.Replace(text, "lossy = true\n", "", 1), "queue_max = \"30KB\"\n", "", 1)
			text = strings.Replace(text, "buffer = \"512KiB\"\n", "", 1)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, files := captured(t, text, "s0.0", 0)
			short, frames := uint64(0), 0
			got := sentBySwitch(t, files["s0.0"], func(f *dissect.Frame) {
				switch binary.BigEndian.Uint16(f.Data[12:]) {
				case 0x0800:
					if ip := int(binary.BigEndian.Uint16(f.Data[16:])); ip+14 > f.Length {
						short++
					}
				case 0x8808:
					if f.Data[16]|f.Data[17] == 0 {
						t.Errorf("a pause frame of no class: % x", f.Data)
					}
				default:
					frames++
				}
			})
			if want := portBytes(t, r, text, "s0.0"); got != want {
				t.Errorf("the switch has sent %d bytes, %d of them are in the capture", want, got)
			}
			if trims := strings.Contains(text, "trim = true"); trims != (r.Totals.Trimmed > 0) || trims != (short > 0) {
				t.Errorf("%d packets were trimmed, of which %d are in the capture", r.Totals.Trimmed, short)
			}
			if (name == "credit") != (frames > 0) {
				t.Errorf("%d frames of programs", frames)
			}
			if name == "credit" {
				return // what dump does not know
			}
			if f := dump(t, files["s0.0"]); f.packets == 0 {
				t.Error("dump finds no packets")
			}
		})
	}
}
