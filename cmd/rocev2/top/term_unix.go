//go:build linux || darwin

package top

import (
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tty is the terminal of this process. x/sys has all that it needs.
type tty struct {
	out     *os.File
	in      *os.File // nil: no keys
	before  *unix.Termios
	input   chan []byte
	events  chan Event
	signals chan os.Signal
	begun   bool
}

// OpenTerminal returns the terminal that out is. in has its keys, if that is
// one as well. The error is ErrNoTerminal if there is none.
func OpenTerminal(in, out *os.File) (Terminal, error) {
	if _, err := unix.IoctlGetTermios(int(out.Fd()), getTermios); err != nil || os.Getenv("TERM") == "dumb" {
		return nil, ErrNoTerminal
	}
	t := &tty{out: out, input: make(chan []byte), events: make(chan Event, 4), signals: make(chan os.Signal, 4)}
	if before, err := unix.IoctlGetTermios(int(in.Fd()), getTermios); err == nil {
		t.in, t.before = in, before
	}
	return t, nil
}

func (t *tty) Write(b []byte) (int, error) { return t.out.Write(b) }
func (t *tty) Input() <-chan []byte        { return t.input }
func (t *tty) Events() <-chan Event        { return t.events }

// Size implements Terminal. A terminal that does not know is taken for one of
// 80 by 24.
func (t *tty) Size() (width, height int) {
	ws, err := unix.IoctlGetWinsize(int(t.out.Fd()), unix.TIOCGWINSZ)
	if err != nil || ws.Col == 0 || ws.Row == 0 {
		return 80, 24
	}
	return int(ws.Col), int(ws.Row)
}

// Begin implements Terminal.
func (t *tty) Begin() error {
	if t.in != nil {
		// Signals are made of keys as ever, and lines end as ever.
		now := *t.before
		now.Lflag &^= unix.ICANON | unix.ECHO | unix.IEXTEN
		now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
		if err := unix.IoctlSetTermios(int(t.in.Fd()), setTermios, &now); err != nil {
			return os.NewSyscallError("tcsetattr", err)
		}
	}
	if !t.begun {
		t.begun = true
		go t.listen()
		if t.in != nil {
			go t.read()
		}
	}
	signal.Notify(t.signals, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGHUP, syscall.SIGQUIT)
	_, err := io.WriteString(t, enterScreen)
	return err
}

// End implements Terminal. It goes on where something fails: the terminal may
// be gone.
func (t *tty) End() {
	signal.Stop(t.signals)
	_, _ = io.WriteString(t, leaveScreen)
	if t.in != nil {
		_ = unix.IoctlSetTermios(int(t.in.Fd()), setTermios, t.before)
	}
}

// Suspend implements Terminal. It returns when the process goes on, or at once
// where it does not stop: no shell would have it go on.
func (t *tty) Suspend() {
	on := make(chan os.Signal, 1)
	signal.Notify(on, syscall.SIGCONT)
	defer signal.Stop(on)
	_ = unix.Kill(os.Getpid(), unix.SIGTSTP)
	select {
	case <-on:
	case <-time.After(stopTime):
	}
}

// stopTime is long enough for a process to stop.
const stopTime = 200 * time.Millisecond

// listen makes events of signals.
func (t *tty) listen() {
	for s := range t.signals {
		e := Resized
		switch s {
		case syscall.SIGTSTP:
			e = Suspend
		case syscall.SIGHUP, syscall.SIGQUIT:
			e = Hangup
		}
		t.events <- e
	}
}

// read reads what is typed until the terminal is gone.
func (t *tty) read() {
	defer close(t.input)
	for {
		b := make([]byte, 64)
		n, err := t.in.Read(b)
		if err != nil || n == 0 {
			return
		}
		t.input <- b[:n]
	}
}
