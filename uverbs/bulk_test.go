package uverbs

import "testing"

func TestBulk(t *testing.T) {
	t.Parallel()
	const n = 64 << 10
	for _, c := range []struct {
		why       string
		note      func(b *Bulk)
		is, rests bool
	}{
		{"nothing was posted", func(*Bulk) {}, false, false},
		{"much was", func(b *Bulk) { b.posts(8 * n) }, true, true},
		{"by many queues, each a little", func(b *Bulk) { postEach(b, 8, n) }, true, true},
		{"less was", func(b *Bulk) { b.posts(7 * n) }, false, true},
		{"little was", func(b *Bulk) { b.posts(n) }, false, false},
		{"short requests complete among them", func(b *Bulk) { b.posts(8 * n); b.posts(0); b.sent(100) }, true, true},
		{"some have completed", func(b *Bulk) { b.posts(9 * n); b.sent(n); b.sent(n) }, false, true},
		{"all have", func(b *Bulk) { b.posts(2 * n); b.sent(n); b.sent(n) }, false, false},
		{"they never do", func(b *Bulk) { b.posts(10 * n); b.drops(10 * n) }, false, false},
		{"there is a stream of receives", func(b *Bulk) { receiveStream(b, n, 100) }, true, true},
		{"it is short of receives", func(b *Bulk) { receiveStream(b, n, 1) }, false, false},
		{"each is answered", func(b *Bulk) {
			for range 100 {
				b.received(n, 100)
				b.posts(0)
			}
		}, false, false},
		{"each half a megabyte is answered", func(b *Bulk) {
			for range 16 {
				b.posts(0)
				for range 8 {
					b.received(n, 100)
				}
			}
		}, false, false},
		{"an answer", func(b *Bulk) { receiveStream(b, n, 100); b.posts(0) }, false, false},
		{"and then others", func(b *Bulk) { receiveStream(b, n, 100); b.posts(0); b.sent(8) }, false, false},
		{"one is short", func(b *Bulk) { receiveStream(b, n, 100); b.received(8, 100) }, false, false},
		{"both ways", func(b *Bulk) { b.posts(100 * n); b.received(n, 100) }, true, true},
	} {
		var b Bulk
		c.note(&b)
		if b.is() != c.is || b.rests() != c.rests {
			t.Errorf("%s: bulk %v, rests %v", c.why, b.is(), b.rests())
		}
	}
}

func postEach(b *Bulk, queues int, n int64) {
	for range queues {
		b.posts(n)
	}
}

func receiveStream(b *Bulk, n uint32, left int) {
	for range bulkStream / n {
		b.received(n, left)
	}
}
