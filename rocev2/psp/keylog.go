package psp

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
)

// KeyLogLabel begins a line of a key log that has the key of a security
// association. Readers of such files ignore lines whose label they do not know
// (RFC 9850 2), so they may stand beside those of TLS.
const KeyLogLabel = "ROCEV2_PSP"

// MaxKeyLogLine is more than any line with a key is long, in bytes.
const MaxKeyLogLine = 256

// LoggedKey is the key of a security association as a key log has it: a line of
// three fields (RFC 9850 2), of which the second is the SPI of its first
// packets, and the address of the receiver that has chosen it:
//
//	ROCEV2_PSP 0x00000011@192.0.2.1 00112233445566778899aabbccddeeff
//
// The keys of all its packets are derived from that key: see Chain and Reader.
// The version stands in the packets; the key has the length that it needs.
type LoggedKey struct {
	SPI      uint32
	Receiver netip.Addr // without a zone
	Key      []byte     `json:"-"` // 16 or 32 bytes
}

// Format keeps the key out of what is printed.
func (k LoggedKey) Format(s fmt.State, _ rune) {
	fmt.Fprintf(s, "key of SPI 0x%08x at %v", k.SPI, k.Receiver)
}

// AppendTo appends the line with its end.
func (k *LoggedKey) AppendTo(b []byte) []byte {
	b = fmt.Appendf(b, "%s 0x%08x@%v ", KeyLogLabel, k.SPI, k.Receiver.Unmap().WithZone(""))
	return append(hex.AppendEncode(b, k.Key), '\n')
}

// What is wrong with a line of a key log. No text of the line is in it, as that
// may be a key.
var (
	errLogFields  = errors.New("psp: a line with a key has three fields with a space between them: " + KeyLogLabel + ", SPI@ADDRESS and the key")
	errLogSPI     = errors.New("psp: the second field begins with the SPI: 0x and 8 hexadecimal digits, which are not all 0")
	errLogAddress = errors.New("psp: the second field ends with the address of the receiver, an IPv4 or IPv6 address without a zone")
	errLogKey     = errors.New("psp: the third field is a key of 32 or 64 hexadecimal digits")
)

// ParseKeyLog reads a line of a key log, without its end. It reports false for
// a line with another label, which it does not look at.
func ParseKeyLog(line []byte) (k LoggedKey, ours bool, err error) {
	line = bytes.TrimSuffix(line, []byte("\r"))
	label, rest, _ := bytes.Cut(line, []byte(" "))
	if string(label) != KeyLogLabel {
		return k, false, nil
	}
	name, key, ok := bytes.Cut(rest, []byte(" "))
	if !ok {
		return k, true, errLogFields
	}
	spi, addr, ok := bytes.Cut(name, []byte("@"))
	if !ok {
		return k, true, errLogFields
	}
	n, err := strconv.ParseUint(string(bytes.TrimPrefix(spi, []byte("0x"))), 16, 32)
	if err != nil || n == 0 || len(spi) != len("0x00000000") || !bytes.HasPrefix(spi, []byte("0x")) {
		return k, true, errLogSPI
	}
	if k.Receiver, err = netip.ParseAddr(string(addr)); err != nil || k.Receiver.Zone() != "" {
		return LoggedKey{}, true, errLogAddress
	}
	k.SPI, k.Receiver = uint32(n), k.Receiver.Unmap()
	if len(key) != 2*GCM128.KeyLen() && len(key) != 2*GCM256.KeyLen() {
		return LoggedKey{}, true, errLogKey
	}
	if k.Key, err = hex.AppendDecode(nil, key); err != nil {
		return LoggedKey{}, true, errLogKey
	}
	return k, true, nil
}
