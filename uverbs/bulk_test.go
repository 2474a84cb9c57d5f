package uverbs

import "testing"

func TestBulk(t *testing.T) {
	t.Parallel()
	const n = 64 << 10
	for _, c := range []struct {
		why  string
		note func(b *Bulk)
		want bool
	}{
		{"nothing was completed", func(*Bulk) {}, false},
		{"many requests wait behind one", func(b *Bulk) { b.sent(n, 8) }, true},
		{"few do", func(b *Bulk) { b.sent(n, 7) }, false},
		{"they are short", func(b *Bulk) { b.sent(1024, 1000) }, false},
		{"it was the last one", func(b *Bulk) { b.sent(n, 8); b.sent(n, 0) }, false},
		{"there is a stream of receives", func(b *Bulk) { receiveStream(b, n, 100) }, true},
		{"it is short of receives", func(b *Bulk) { receiveStream(b, n, 1) }, false},
		{"each is answered", func(b *Bulk) {
			for range 100 {
				b.received(n, 100)
				b.posted()
			}
		}, false},
		{"each half a megabyte is answered", func(b *Bulk) {
			for range 16 {
				b.posted()
				for range 8 {
					b.received(n, 100)
				}
			}
		}, false},
		{"an answer", func(b *Bulk) { receiveStream(b, n, 100); b.posted() }, false},
		{"and then others", func(b *Bulk) { receiveStream(b, n, 100); b.posted(); b.sent(8, 0) }, false},
		{"one is short", func(b *Bulk) { receiveStream(b, n, 100); b.received(8, 100) }, false},
		{"both ways", func(b *Bulk) { b.sent(n, 100); b.posted(); b.received(n, 100) }, true},
		{"it is over", func(b *Bulk) { receiveStream(b, n, 100); b.sent(n, 100); b.over() }, false},
	} {
		var b Bulk
		c.note(&b)
		if b.is() != c.want {
			t.Errorf("%s: bulk %v", c.why, b.is())
		}
	}
}

func receiveStream(b *Bulk, n uint32, left int) {
	for range bulkStream / n {
		b.received(n, left)
	}
}
