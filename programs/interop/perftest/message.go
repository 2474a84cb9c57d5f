package perftest

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/verbs"
)

// Version is what this side announces. Versions from 6.28 on exchange more,
// but only among themselves.
const Version = "6.06"

// minVersion is the oldest version with the same exchange.
const minVersion = 5.70

// Sizes of the items of the control connection, in bytes.
const (
	versionLen = 16
	numberLen  = 4
	mtuLen     = 2
	addressLen = 108
	reportLen  = 8
	done       = "done\x00"
)

// appendVersion makes the version item, with the mark of this software or, as
// the originals have it, without.
func appendVersion(b []byte, mark bool) []byte {
	text := Version
	if mark {
		text += ownMark
	}
	return append(b, text+strings.Repeat("\x00", versionLen-len(text))...)
}

// parseVersion reads the leading number, as atof does, and says whether the
// peer is this software.
func parseVersion(b []byte) (version string, own bool, err error) {
	text, _, _ := bytes.Cut(b, []byte{0})
	n := 0
	for n < len(text) && (text[n] >= '0' && text[n] <= '9' || text[n] == '.') {
		n++
	}
	v, err := strconv.ParseFloat(string(text[:n]), 64)
	if err != nil || v < minVersion {
		return "", false, badVersion(b)
	}
	return string(text[:n]), bytes.HasPrefix(b[n:], []byte(ownMark)), nil
}

func badVersion(b []byte) error {
	return &interop.ProtocolError{Step: "version", Got: b, Want: fmt.Sprintf("the number of perftest %.2f or newer, in 16 bytes", minVersion)}
}

// What a peer may announce. Pages are at most 64 KiB on the machines of this
// field; there is room for more, but not for an attack on memory.
const (
	maxCycle     = 1 << 20
	maxCacheLine = 1 << 10
)

func appendNumber(b []byte, n int) []byte { return binary.BigEndian.AppendUint32(b, uint32(n)) }

func parseNumber(step string, b []byte, most int) (int, error) {
	n := binary.BigEndian.Uint32(b)
	if n > uint32(most) {
		return 0, &interop.ProtocolError{Step: step, Got: b, Want: fmt.Sprintf("a number of bytes up to %d, big-endian", most)}
	}
	return int(n), nil
}

func appendMTU(b []byte, m verbs.MTU) []byte { return append(b, '0'+byte(m), 0) }

func parseMTU(b []byte) (verbs.MTU, error) {
	m := verbs.MTU(b[0] - '0')
	if !m.Valid() || b[1] != 0 {
		return 0, &interop.ProtocolError{Step: "path MTU", Got: b, Want: `"1" (256 bytes) to "5" (4096 bytes) and a NUL`}
	}
	return m, nil
}

// Address is what the two sides tell each other about a queue pair.
type Address struct {
	LID      uint16 // 0 on Ethernet
	OutReads uint16 // READs and atomics that the peer may have outstanding
	QPN      verbs.QPN
	PSN      verbs.PSN // the first that this side sends
	RKey     verbs.Key
	VAddr    uint64 // where the peer writes, reads and counts
	GID      interop.GID
	SRQN     uint32
}

func (a Address) String() string {
	return fmt.Sprintf("LID 0x%04x QPN 0x%06x PSN 0x%06x OUT 0x%02x RKey 0x%08x VAddr 0x%016x GID %v",
		a.LID, uint32(a.QPN), uint32(a.PSN), a.OutReads, uint32(a.RKey), a.VAddr, a.GID.Addr())
}

// append adds the form with a GID: fields in hexadecimal of fixed width, a
// colon after each, a NUL at the end.
func (a Address) append(b []byte) []byte {
	b = fmt.Appendf(b, "%04x:%04x:%06x:%06x:%08x:%016x:", a.LID, a.OutReads, uint32(a.QPN), uint32(a.PSN), uint32(a.RKey), a.VAddr)
	for _, g := range a.GID {
		b = hex.AppendEncode(b, []byte{g})
		b = append(b, ':')
	}
	return fmt.Appendf(b, "%08x:\x00", a.SRQN)
}

// shortAddressLen is the size of the form without a GID, which ends in a NUL
// after the SRQ number.
const shortAddressLen = 59

const addressForm = "lid:reads:qpn:psn:rkey:address:gid (16 times xx:)srqn: in hexadecimal and a NUL, 108 bytes"

func parseAddress(step string, b []byte) (Address, error) {
	var a Address
	text, _, _ := bytes.Cut(b, []byte{0})
	f := bytes.Split(text, []byte{':'})
	// 6 fields, 16 bytes of GID, the SRQ number, and nothing after the last
	// colon
	if len(f) != 24 || len(f[23]) != 0 {
		return a, &interop.ProtocolError{Step: step, Got: b, Want: addressForm}
	}
	var v [23]uint64
	for i, bits := range addressBits {
		n, err := strconv.ParseUint(string(f[i]), 16, bits)
		if err != nil {
			return a, &interop.ProtocolError{Step: step, Got: b, Want: addressForm}
		}
		v[i] = n
	}
	a = Address{
		LID: uint16(v[0]), OutReads: uint16(v[1]), QPN: verbs.QPN(v[2]), PSN: verbs.PSN(v[3]),
		RKey: verbs.Key(v[4]), VAddr: v[5], SRQN: uint32(v[22]),
	}
	for i := range a.GID {
		a.GID[i] = byte(v[6+i])
	}
	return a, nil
}

// binaryLen is the size of an address message over a queue pair.
const binaryLen = 56

const binaryForm = "lid, reads, qpn, psn and rkey in 4 bytes each, 4 more, address in 8, gid in 16, srqn and gid index in 4 each, big-endian, 56 bytes"

// ownGIDIndex is what an original has with -x 1. It is not read.
const ownGIDIndex = 1

// appendBinary adds the form that goes over a queue pair.
func (a Address) appendBinary(b []byte) []byte {
	for _, v := range []uint32{uint32(a.LID), uint32(a.OutReads), uint32(a.QPN), uint32(a.PSN), uint32(a.RKey), 0} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	b = binary.BigEndian.AppendUint64(b, a.VAddr)
	b = append(b, a.GID[:]...)
	b = binary.BigEndian.AppendUint32(b, a.SRQN)
	return binary.BigEndian.AppendUint32(b, ownGIDIndex)
}

func parseBinary(step string, b []byte) (Address, error) {
	var v [5]uint32
	for i := range v {
		v[i] = binary.BigEndian.Uint32(b[4*i:])
	}
	if v[0] > math.MaxUint16 || v[1] > math.MaxUint16 || v[2] >= 1<<24 || v[3] >= 1<<24 {
		return Address{}, &interop.ProtocolError{Step: step, Got: b, Want: binaryForm}
	}
	return Address{
		LID: uint16(v[0]), OutReads: uint16(v[1]), QPN: verbs.QPN(v[2]), PSN: verbs.PSN(v[3]), RKey: verbs.Key(v[4]),
		VAddr: binary.BigEndian.Uint64(b[24:]), GID: interop.GID(b[32:48]), SRQN: binary.BigEndian.Uint32(b[48:]),
	}, nil
}

// binary reports whether addresses have the form of appendBinary.
func (c *Config) binary() bool { return c.CM != NoCM }

func (c *Config) appendAddress(b []byte, a Address) []byte {
	if c.binary() {
		return a.appendBinary(b)
	}
	return a.append(b)
}

func (c *Config) parseAddress(step string, b []byte) (Address, error) {
	if c.binary() {
		return parseBinary(step, b)
	}
	return parseAddress(step, b)
}

// addressBits is the width of each field.
var addressBits = [23]int{16, 16, 24, 24, 32, 64, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 32}

// isShortAddress reports whether b begins with the form that has no GID.
func isShortAddress(b []byte) bool { return len(b) >= shortAddressLen && b[shortAddressLen-1] == 0 }

// report is the exchange of results: five items of 8 bytes, big-endian, the
// rates as floating point numbers.
type report struct {
	size, iterations uint64
	peak, average    float64 // MiB/s
	msgRate          float64 // 10^6 messages a second
}

func (r report) items() [5]uint64 {
	return [5]uint64{r.size, r.iterations, math.Float64bits(r.peak), math.Float64bits(r.average), math.Float64bits(r.msgRate)}
}

// reportOf takes what the peer sent. A rate that is no number counts as 0.
func reportOf(v [5]uint64) report {
	rate := func(bits uint64) float64 {
		f := math.Float64frombits(bits)
		if math.IsNaN(f) || math.IsInf(f, 0) || f < 0 {
			return 0
		}
		return f
	}
	return report{size: v[0], iterations: v[1], peak: rate(v[2]), average: rate(v[3]), msgRate: rate(v[4])}
}
