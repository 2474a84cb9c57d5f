package rdmanet

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// What an idle connection takes on each side, with all that is below it but the
// connection manager. It is not parallel: it measures the heap.
func TestMemoryOfIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, most = 512, 5200
		p, q := verbstest.Devices(t)
		var conns []*Conn
		open := func() {
			a, b := connect(t, p, q, Options{})
			conns = append(conns, a, b)
		}
		open() // the first makes what all share
		before := verbstest.Heap()
		for range n {
			open()
		}
		each := (verbstest.Heap() - before) / (2 * n)
		t.Logf("an idle connection takes %d bytes", each)
		if each > most {
			t.Errorf("an idle connection takes %d bytes, more than %d", each, most)
		}
		runtime.KeepAlive(conns)
	})
}

// A peer that sends may soon have as many messages under way as the options
// say, though there are few receives for it at first.
func TestCreditsGrow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, q := verbstest.Devices(t)
		a, b := connect(t, p, q, Options{Credits: 40})
		until := time.Now().Add(time.Minute)
		must(t, a.SetDeadline(until))
		must(t, b.SetDeadline(until))
		write := func() {
			t.Helper()
			_, err := a.Write([]byte{1})
			must(t, err)
		}
		read := func(c *Conn, n int) {
			t.Helper()
			for n > 0 {
				some, err := c.Read(make([]byte, n))
				must(t, err)
				n -= some
			}
		}
		if b.wide || a.stream.Room() == 0 {
			t.Fatal("it begins wide, or without credits")
		}
		for range firstCredits {
			write()
		}
		read(b, firstCredits)
		_, err := b.Write([]byte{1}) // after the credits
		must(t, err)
		read(a, 1)
		for range 40 - firstCredits { // which b does not read yet
			write()
		}
		read(b, 40-firstCredits)
	})
}

// The messages of a long Write have no last packet that is longer than the
// others by its immediate data, whatever the path MTU, but for the last of all.
func TestChunks(t *testing.T) {
	t.Parallel()
	for _, size := range []uint64{minBuffer, 64 << 10, 512 << 10} {
		q := sendQueue{size: size}
		for limit := 1; limit <= 1<<20; limit += 509 {
			messages := 0
			for left := limit; left > 0; messages++ {
				n := q.chunk(left)
				if n <= 0 || n > left || uint64(n) > size {
					t.Fatalf("%d of %d bytes, of a buffer of %d", n, left, size)
				}
				if n < left && (n%256 == 0 || n%256 > 256-immBytes) {
					t.Fatalf("%d of %d bytes: the last packet is longer than the others", n, left)
				}
				left -= n
			}
			chunk := int(min(size, maxChunk)) - immBytes
			if most := limit/chunk + 1; messages > most {
				t.Fatalf("%d bytes take %d messages, more than %d", limit, messages, most)
			}
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
