package verbs

import "github.com/gosoftroce/rocev2/rocev2"

// QPN is a queue pair number, 24 bits. String prints it in hexadecimal.
type QPN = rocev2.QPN

// PSN is a packet sequence number, 24 bits. It counts packets and wraps around.
type PSN = rocev2.PSN

// MTU is a path MTU: how many bytes of payload a packet has at most. It is a
// code from 1 to 5, not a number of bytes; the constants below are the codes.
// Bytes returns the number of bytes, MTUOf makes an MTU of one.
type MTU = rocev2.MTU

// Path MTUs (IBTA 5.2.1): codes, whose names say the bytes.
const (
	MTU256  MTU = rocev2.MTU256
	MTU512  MTU = rocev2.MTU512
	MTU1024 MTU = rocev2.MTU1024
	MTU2048 MTU = rocev2.MTU2048
	MTU4096 MTU = rocev2.MTU4096
)

// MTUOf returns the path MTU of exactly n bytes of payload: 256, 512, 1024,
// 2048 or 4096. Other numbers are an error, which says so.
func MTUOf(n int) (MTU, error) { return rocev2.MTUOf(n) }
