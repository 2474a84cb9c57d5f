//go:build !portable

package udp

import (
	"testing"

	"github.com/gosoftroce/rocev2/transport"
)

// One recvmmsg asks for more headers as long as it fills all, and for fewer
// again when what they bring would not stay in the cache.
func TestRecvAdapts(t *testing.T) {
	t.Parallel()
	b := transport.NewRxBatch(recvHeaders)
	var r receiver
	r.init(&Link{})
	took := func(n, bytes int) {
		t.Helper()
		if r.n < n {
			t.Fatalf("%d headers of %d", n, r.n)
		}
		r.got = n
		for i := range n {
			r.hdrs[i].n = uint32(bytes)
		}
		r.prepare(b)
	}
	r.prepare(b)
	if r.n != fewHeaders {
		t.Fatalf("it begins with %d headers", r.n)
	}
	for r.n < recvHeaders {
		n := r.n
		took(n, 64)
		if r.n != min(2*n, recvHeaders) {
			t.Fatalf("all of %d were filled with small packets: %d", n, r.n)
		}
	}
	took(3, 64)
	took(0, 0)
	if r.n != recvHeaders {
		t.Fatalf("few packets have come: %d headers", r.n)
	}
	took(recvHeaders, transport.RxBufferLen-1)
	most := recvBytes() / transport.RxBufferLen
	if r.n != most {
		t.Fatalf("%d headers for runs of 64 KiB, want %d", r.n, most)
	}
	for range 4 {
		took(r.n, transport.RxBufferLen-1)
	}
	if r.n != most {
		t.Fatalf("%d headers for runs of 64 KiB, want %d", r.n, most)
	}
	took(r.n, transport.RxBufferLen/2)
	took(r.n, transport.RxBufferLen/2)
	if want := min(2*most, recvHeaders); r.n < most || r.n > want {
		t.Fatalf("%d headers for runs of 32 KiB, want up to %d", r.n, want)
	}
	for i := range r.n { // all are ready
		if h := &r.hdrs[i].hdr; h.Namelen == 0 || h.Controllen != recvControl || h.Iov.Len != transport.RxBufferLen {
			t.Fatalf("header %d of %d is not ready: %+v", i, r.n, h)
		}
	}
	b = transport.NewRxBatch(1)
	r.prepare(b)
	took(1, transport.RxBufferLen-1)
	if r.n != 1 {
		t.Fatalf("%d headers for a batch of one buffer", r.n)
	}
}

func TestRecvBytes(t *testing.T) {
	t.Parallel()
	const least, most = fewHeaders * transport.RxBufferLen, recvHeaders * transport.RxBufferLen
	for n, want := range map[int]int{0: least, 1 << 18: least, 1 << 19: 1 << 19, 1 << 30: most} {
		if got := recvBytesOf(n); got != want {
			t.Errorf("of %d bytes: %d, want %d", n, got, want)
		}
	}
}
