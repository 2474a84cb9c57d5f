package verbs_test

import (
	"os"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/internal/race"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// optional is a pair with one optional rule.
func optional(rule string) verbstest.Config {
	return verbstest.Config{Device: verbs.Config{Strict: rule}}
}

// TestStrictSendChanged: memory that is written between post and completion is
// found, and that which is written after it is not.
func TestStrictSendChanged(t *testing.T) {
	strictPair(t, optional("send-changed"), func(t *testing.T, a, b *verbstest.Side) {
		send := func(id uint64, off, n int) {
			t.Helper()
			wr := verbs.SendWR{ID: id, Opcode: verbs.OpWrite, Signaled: id%2 == 1, SGList: []verbs.SGE{a.MR.Slice(off, n)}, Remote: b.MR.RemoteAt(0)}
			if err := a.QP.PostSend(wr); err != nil {
				t.Fatal(err)
			}
		}
		for id := range uint64(10) {
			a.MR.Bytes()[id]++
			send(id, 0, 100)
			if id%2 == 1 {
				if wc := a.Next(t); wc.Err() != nil {
					t.Fatal(wc)
				}
			} else {
				synctest.Wait() // it has completed, and the program cannot know
			}
		}
		if f := found(t, a.Dev, "send-changed"); len(f) == 1 && (f[0].Count != 5 || f[0].WRID != 0 || f[0].Length != 100) {
			t.Errorf("%v, %d times", f[0], f[0].Count)
		}
	})
}

func TestStrictSendUnchanged(t *testing.T) {
	strictPair(t, optional("send-changed"), func(t *testing.T, a, b *verbstest.Side) {
		for id := range uint64(100) {
			copy(a.MR.Bytes(), []byte{byte(id), 1, 2, byte(id)})
			wr := verbs.SendWR{ID: id, Opcode: verbs.OpWrite, Signaled: true, SGList: []verbs.SGE{a.MR.Slice(0, 30000)}, Remote: b.MR.RemoteAt(0)}
			if id%3 == 0 {
				wr.Opcode, wr.SGList = verbs.OpRead, []verbs.SGE{a.MR.Slice(100, 3000)}
			}
			if err := a.QP.PostSend(wr); err != nil {
				t.Fatal(err)
			}
			if wc := a.Next(t); wc.Err() != nil {
				t.Fatal(wc)
			}
		}
		found(t, a.Dev)
	})
}

// TestStrictEarlyRead: memory of requests is poisoned until they complete, and
// what a message does not write is as before then.
func TestStrictEarlyRead(t *testing.T) {
	strictPair(t, optional("early-read"), func(t *testing.T, a, b *verbstest.Side) {
		mine, theirs := a.MR.Bytes(), b.MR.Bytes()
		for i := range 200 {
			mine[i], theirs[i] = byte(i), byte(255-i)
		}
		b.Port.Cut()
		if err := a.QP.PostSend(verbs.SendWR{ID: 1, Opcode: verbs.OpRead, Signaled: true, SGList: []verbs.SGE{a.MR.Slice(8, 16)}, Remote: b.MR.RemoteAt(0)}); err != nil {
			t.Fatal(err)
		}
		if mine[7] != 7 || mine[8] != 0xdb || mine[23] != 0xdb || mine[24] != 24 {
			t.Errorf("before the completion of a READ there is %x", mine[:32])
		}
		b.Port.Plug()
		if wc := a.Next(t); wc.Err() != nil || mine[8] != 255 || mine[23] != 255-15 || mine[24] != 24 {
			t.Errorf("%v, and then %x", wc, mine[:32])
		}
		if err := b.QP.PostRecv(verbs.RecvWR{ID: 2, SGList: []verbs.SGE{b.MR.Slice(100, 50)}}, verbs.RecvWR{ID: 3, SGList: []verbs.SGE{b.MR.Slice(150, 10)}}); err != nil {
			t.Fatal(err)
		}
		if theirs[99] != 255-99 || theirs[100] != 0xdb || theirs[159] != 0xdb {
			t.Errorf("before the completion of a receive there is %x", theirs[99:160])
		}
		if err := a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("abc")}); err != nil {
			t.Fatal(err)
		}
		if wc := b.Next(t); wc.Err() != nil || string(theirs[100:103]) != "abc" || theirs[103] != 255-103 || theirs[149] != 255-149 || theirs[150] != 0xdb {
			t.Errorf("%v, and then %x", wc, theirs[99:160])
		}
		if err := b.QP.Modify(&verbs.Attr{State: verbs.StateErr}, verbs.AttrState); err != nil {
			t.Fatal(err)
		}
		if wc := b.Next(t); wc.ID != 3 || theirs[150] != 255-150 {
			t.Errorf("%v, and then %x", wc, theirs[150:160])
		}
		if err := b.QP.PostRecv(verbs.RecvWR{ID: 4, SGList: []verbs.SGE{b.MR.Slice(100, 50)}}); err != nil {
			t.Fatal(err)
		}
		if wc := b.Next(t); wc.ID != 4 || theirs[149] != 255-149 {
			t.Errorf("%v, and then %x", wc, theirs[100:150])
		}
		found(t, a.Dev)
		found(t, b.Dev)
	})
}

// TestStrictClosedReceives: memory of receives that never complete is as before
// when the queue pair has gone.
func TestStrictClosedReceives(t *testing.T) {
	strictPair(t, optional("early-read"), func(t *testing.T, a, b *verbstest.Side) {
		b.MR.Bytes()[5] = 5
		if err := b.QP.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{b.MR.Slice(0, 50)}}); err != nil {
			t.Fatal(err)
		}
		b.QP.Close()
		if got := b.MR.Bytes()[5]; got != 5 {
			t.Errorf("there is %#x", got)
		}
	})
}

// TestStrictSharedPage: a region of whole pages is right, and another is not.
func TestStrictSharedPage(t *testing.T) {
	strictPair(t, optional("shared-page"), func(t *testing.T, a, b *verbstest.Side) {
		page := os.Getpagesize()
		if _, err := b.PD.AllocMemory(4*page, verbs.LocalWrite); err != nil {
			t.Fatal(err)
		}
		if page == 4096 { // then the region of the pair has its pages for itself, too
			found(t, b.Dev)
		}
		buf := make([]byte, 3*page)
		if _, err := a.PD.RegisterMemory(buf[1:page], verbs.LocalWrite); err != nil {
			t.Fatal(err)
		}
		found(t, a.Dev, "shared-page")
	})
}

// TestStrictLastByte: a program that waits for the last byte sees it before the
// others. It looks at the memory from a goroutine of its own, in real time.
func TestStrictLastByte(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("the program of this test is wrong: it races with the adapter (run it without -race)")
	}
	t.Run("Go", func(t *testing.T) {
		a, b := verbstest.NewPair(t, optional("last-byte"))
		lastByte(t, a, b.MR)
	})
	t.Run("allocated", func(t *testing.T) {
		a, b := verbstest.NewPair(t, optional("last-byte"))
		mr, err := b.PD.AllocMemory(4096, verbs.LocalWrite|verbs.RemoteWrite)
		if err != nil {
			t.Fatal(err)
		}
		lastByte(t, a, mr)
	})
}

// lastByte writes from one side into memory of the other.
func lastByte(t *testing.T, a *verbstest.Side, to *verbs.MR) {
	const n = 512
	seen := make(chan bool)
	early := 0
	for round := range 200 {
		tag := uint64(round + 1)
		go func() {
			for {
				if v, err := to.Load64(n - 8); err != nil {
					seen <- false
					return
				} else if v == tag {
					break
				}
			}
			first, err := to.Load64(0)
			seen <- err == nil && first != tag
		}()
		for off := 0; off < n; off += 8 {
			if err := a.MR.Store64(off, tag); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.QP.PostSend(verbs.SendWR{ID: tag, Opcode: verbs.OpWrite, Signaled: true, SGList: []verbs.SGE{a.MR.Slice(0, n)}, Remote: to.RemoteAt(0)}); err != nil {
			t.Fatal(err)
		}
		if wc := a.Next(t); wc.Err() != nil {
			t.Fatal(wc)
		}
		if <-seen {
			early++
		}
		if first, err := to.Load64(0); err != nil || first != tag {
			t.Fatalf("after the completion there is %d, want %d: %v", first, tag, err)
		}
	}
	if early == 0 {
		t.Error("the last bytes never came before the first ones")
	}
	t.Logf("%d of 200 rounds", early)
}
