package uverbstest

import "encoding/binary"

var le = binary.LittleEndian

// Plain returns a plain command as libibverbs writes it, with room for a reply
// of out bytes.
func Plain[C ~uint8](c C, out int, body ...any) []byte {
	b := make([]byte, 8)
	for _, v := range body {
		b, _ = binary.Append(b, le, v)
	}
	le.PutUint32(b, uint32(c))
	le.PutUint16(b[4:], uint16(len(b)/4))
	le.PutUint16(b[6:], uint16(out/4))
	return b
}

// Extended returns an extended command with room for out and driver bytes.
func Extended[C ~uint8](c C, out, driver int, body any) []byte {
	b, _ := binary.Append(make([]byte, 24), le, body)
	le.PutUint32(b, uint32(c)|1<<31)
	le.PutUint16(b[4:], uint16((len(b)-24)/8))
	le.PutUint16(b[6:], uint16(out/8))
	if out+driver > 0 {
		le.PutUint64(b[8:], 0x1000)
	}
	le.PutUint16(b[18:], uint16(driver/8))
	return b
}
