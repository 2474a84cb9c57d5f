//go:build linux && !portable

package udp

import (
	"os"
	"testing"
)

// Wait returns when the other file is readable, and says so.
func TestWaitAlso(t *testing.T) {
	t.Parallel()
	l := open(t, loopback(), Config{})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	calls := 0
	ready := func() {
		calls++
		r.Read(make([]byte, 1))
	}
	if err := l.WaitAlso(r, ready); err != nil {
		t.Fatal(err)
	}
	if l.WaitAlso(w, ready) == nil {
		t.Error("it waits for two other files")
	}
	for want := range 3 {
		w.Write([]byte{1})
		if err := l.Wait(); err != nil || calls != want+1 {
			t.Errorf("%d calls, %v", calls, err)
		}
	}
	l.Wake()
	if err := l.Wait(); err != nil || calls != 3 {
		t.Errorf("woken: %d calls, %v", calls, err)
	}
}
