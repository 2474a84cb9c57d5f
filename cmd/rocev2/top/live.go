package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Terminal is a terminal that shows a view.
type Terminal interface {
	io.Writer
	// Size returns the columns and lines that there are.
	Size() (width, height int)
	// Input has what was typed. It is closed when the terminal is gone.
	Input() <-chan []byte
	// Events has what happens to the terminal.
	Events() <-chan Event
	// Begin has keys come at once, and clears the screen; End undoes it.
	Begin() error
	End()
	// Suspend stops the process, between an End and a Begin.
	Suspend()
}

// Event is what may happen to a terminal.
type Event int

const (
	Resized Event = iota // its size has changed
	Suspend              // the process is to stop
	Hangup               // it is to end
)

// live is what Live goes on with.
type live struct {
	term   Terminal
	src    Source
	view   *View
	keys   keyReader
	timer  *time.Timer
	result chan result
	asking bool // a sample is on its way
}

// result is what asking for a sample has come to.
type result struct {
	sample *Sample
	err    error
	panics any
}

// Live shows a view on a terminal until a key or a signal ends it, or the
// context does. The terminal is then as it was before, also after a panic.
// first is what is shown at first.
func Live(ctx context.Context, term Terminal, src Source, v *View, first *Sample) error {
	if err := term.Begin(); err != nil {
		return err
	}
	defer term.End()
	v.Take(first)
	l := &live{term: term, src: src, view: v, result: make(chan result, 1), timer: time.NewTimer(v.Interval())}
	defer l.timer.Stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		if err := l.draw(); err != nil {
			return err
		}
		if over, err := l.step(ctx); over {
			return err
		}
	}
}

// step waits for something to happen, and does what it is for.
func (l *live) step(ctx context.Context) (over bool, err error) {
	select {
	case <-ctx.Done():
		return true, nil
	case b, ok := <-l.term.Input():
		if !ok {
			return true, nil
		}
		return l.typed(b), nil
	case e := <-l.term.Events():
		switch e {
		case Hangup:
			return true, nil
		case Suspend:
			l.term.End()
			l.term.Suspend()
			return false, l.term.Begin()
		}
	case <-l.timer.C:
		l.timer.Reset(l.view.Interval())
		l.ask(ctx)
	case r := <-l.result:
		l.asking = false
		switch {
		case r.panics != nil:
			panic(r.panics)
		case r.err != nil:
			l.view.Fail(r.err)
		default:
			l.view.Take(r.sample)
		}
	}
	return false, nil
}

// typed takes what was typed.
func (l *live) typed(b []byte) (quit bool) {
	before := l.view.Interval()
	for _, c := range b {
		if k := l.keys.next(c); k != KeyNone && l.view.Press(k) {
			return true
		}
	}
	if l.view.Interval() != before {
		l.timer.Reset(l.view.Interval())
	}
	return false
}

// ask asks for a sample, unless one is on its way: keys do not wait for it. A
// panic is one of the goroutine that has the terminal.
func (l *live) ask(ctx context.Context) {
	if l.asking {
		return
	}
	l.asking = true
	go func() {
		var r result
		defer func() {
			r.panics = recover()
			l.result <- r
		}()
		r.sample, r.err = l.src.Sample(ctx)
	}()
}

// The codes of a terminal (ECMA-48, and xterm's other screen).
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
	leaveScreen = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// draw draws the screen in one write.
func (l *live) draw() error {
	width, height := l.term.Size()
	var b strings.Builder
	b.WriteString(home)
	for i, line := range l.view.Lines(width, height) {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + clearLine)
	}
	b.WriteString(clearBelow)
	if _, err := io.WriteString(l.term, b.String()); err != nil {
		return fmt.Errorf("write to the terminal: %w", err)
	}
	return nil
}

// ErrNoTerminal is the error of OpenTerminal where none can show a view.
var ErrNoTerminal = errors.New("not a terminal")
