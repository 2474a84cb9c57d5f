//go:build unix

package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

const (
	recordLen  = 4096
	places     = 2 // of a connection in the journal; the last record stays while the next is written
	journal    = "journal"
	counters   = "counters"
	counterLen = 8
)

// fill makes record seq of a connection: both numbers, and bytes that follow
// from them.
func fill(b []byte, conn int, seq uint64) {
	binary.LittleEndian.PutUint64(b, seq)
	binary.LittleEndian.PutUint64(b[8:], uint64(conn))
	rng := rand.NewPCG(seq, uint64(conn))
	for i := 16; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
	}
}

// check says how b differs from record seq of a connection.
func check(b []byte, conn int, seq uint64) error {
	want := make([]byte, len(b))
	fill(want, conn, seq)
	for i := range b {
		if b[i] != want[i] {
			return fmt.Errorf("record %d of connection %d: byte %d is %#x, want %#x; the head says record %d of connection %d", seq, conn, i,
				b[i], want[i], binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]))
		}
	}
	return nil
}

// place is where record seq of the nth connection of a server stands.
func place(n int, seq uint64) int64 {
	return int64(n)*places*recordLen + int64(seq%places)*recordLen
}
