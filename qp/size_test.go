package qp

import (
	"testing"
	"unsafe"

	"github.com/gosoftroce/rocev2/qp/cc"
)

// TestIdleSize bounds the memory of a connected queue pair beyond its send and
// receive queues: 4 KiB with 16 outstanding READs, which take 40 bytes each,
// and 64 answers of 24 bytes.
func TestIdleSize(t *testing.T) {
	t.Parallel()
	size := unsafe.Sizeof(QP{}) + unsafe.Sizeof(cc.Window{}) + 16*40 + 64*24
	if size > 4096 {
		t.Errorf("%d bytes with 16 outstanding READs, want at most 4096", size)
	}
	t.Logf("%d bytes, %d of them the queue pair itself", size, unsafe.Sizeof(QP{}))
}
