package top

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openPTY returns both ends of a pseudo-terminal.
func openPTY(t *testing.T) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no pseudo-terminals: %v", err)
	}
	t.Cleanup(func() { user.Close() })
	if err := unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Skipf("there are no pseudo-terminals: %v", err)
	}
	t.Cleanup(func() { program.Close() })
	return user, program
}

func settingsOf(t *testing.T, f *os.File) *unix.Termios {
	t.Helper()
	s, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// On a real terminal keys come at once and are not echoed, its size counts, and
// everything is as before at the end, after a panic, too.
func TestTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	for _, panics := range []bool{false, true} {
		user, program := openPTY(t)
		before := settingsOf(t, program)
		if err := unix.IoctlSetWinsize(int(user.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 7, Col: 33}); err != nil {
			t.Fatal(err)
		}
		term, err := OpenTerminal(program, program)
		if err != nil {
			t.Fatal(err)
		}
		v, err := NewView("", "", minInterval)
		if err != nil {
			t.Fatal(err)
		}
		over := make(chan any, 1)
		go func() {
			defer func() { over <- recover() }()
			src := sourceFunc(func(context.Context) (*Sample, error) {
				if panics {
					panic("oh")
				}
				return busy(2), nil
			})
			if err := Live(t.Context(), term, src, v, busy(1)); err != nil {
				panic(err)
			}
		}()
		text := make(chan string, 1)
		go func() {
			var all strings.Builder
			b := make([]byte, 4096)
			sent := panics
			for !strings.Contains(all.String(), leaveScreen) {
				n, err := user.Read(b)
				if err != nil {
					break
				}
				all.Write(b[:n])
				if !sent && strings.Contains(all.String(), "2 Queue pairs 3") {
					sent = true
					if during := settingsOf(t, program); during.Lflag&(unix.ICANON|unix.ECHO) != 0 || during.Lflag&unix.ISIG == 0 {
						t.Errorf("meanwhile the flags are %#x", during.Lflag)
					}
					_, _ = user.Write([]byte("q")) // Live does not end, else
				}
			}
			text <- all.String()
		}()
		if v := <-over; panics != (v == "oh") {
			t.Errorf("it ends with %v", v)
		}
		if got := <-text; !strings.HasPrefix(got, enterScreen) || !strings.HasSuffix(got, leaveScreen) {
			t.Errorf("%q", got)
		}
		if after := settingsOf(t, program); !reflect.DeepEqual(after, before) {
			t.Errorf("panic %v: the settings are %+v, were %+v", panics, after, before)
		}
	}
}

// What is no terminal, and one that cannot be written on freely, show no view.
func TestNoTerminal(t *testing.T) {
	_, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := OpenTerminal(w, w); !errors.Is(err, ErrNoTerminal) {
		t.Error(err)
	}
	_, program := openPTY(t)
	t.Setenv("TERM", "dumb")
	if _, err := OpenTerminal(program, program); !errors.Is(err, ErrNoTerminal) {
		t.Error(err)
	}
}
