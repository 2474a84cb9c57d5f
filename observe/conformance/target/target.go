// Package target is the other side of a conformance test: it makes queue pairs
// on a device of package verbs, posts what it is asked to, and shows memory.
// The protocol, lines of text over a stream, is that of stage.Conn.
//
// It is for tests: a client may have this process send to the address that it
// comes from. It serves several clients at a time, and bounds them.
package target

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// Limits.
const (
	maxClients = 16
	maxLine    = 1 << 14
	idleLimit  = 2 * time.Minute // for the next command
	maxWait    = time.Minute     // of one wc
)

// Config says what the target tells of itself.
type Config struct {
	Release string // of this software
	// AnyPeer lets clients name another address for the queue pair's
	// traffic than the one that they connect from. Without it, clients that
	// connect over loopback may name any loopback address, and no others
	// may.
	AnyPeer bool
	// OnBegin, if set, is asked about every client before it is served; its
	// error refuses the client. OnClient, if set, is told of every client
	// that was served when it has gone. Calls come from several goroutines.
	OnBegin  func(net.Addr) error
	OnClient func(addr net.Addr, commands int, err error)
}

// Serve serves the clients of ln until ctx ends or the listener fails, and
// returns why. It closes ln, and returns when all clients are gone.
func Serve(ctx context.Context, dev *verbs.Device, ln net.Listener, c Config) error {
	defer ln.Close()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	room := make(chan struct{}, maxClients)
	for {
		conn, err := ln.Accept()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("wait for clients: %w", err)
		}
		select {
		case room <- struct{}{}:
		default:
			fmt.Fprintln(conn, "error too many clients")
			conn.Close()
			continue
		}
		wg.Go(func() {
			defer func() { <-room }()
			if c.OnBegin != nil {
				if err := c.OnBegin(conn.RemoteAddr()); err != nil {
					fmt.Fprintln(conn, "error", err)
					conn.Close()
					return
				}
			}
			n, err := ServeConn(ctx, dev, conn, c)
			if c.OnClient != nil {
				c.OnClient(conn.RemoteAddr(), n, err)
			}
		})
	}
}

// ServeConn serves one client to its end, and closes the connection. It returns
// how many commands there were.
func ServeConn(ctx context.Context, dev *verbs.Device, conn net.Conn, c Config) (commands int, err error) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	s := &session{ctx: ctx, dev: dev, release: c.Release, anyPeer: c.AnyPeer, from: conn.RemoteAddr()}
	defer s.close()
	in := bufio.NewReaderSize(conn, maxLine)
	for {
		if err := conn.SetDeadline(time.Now().Add(idleLimit)); err != nil {
			return commands, err
		}
		line, err := in.ReadSlice('\n')
		if err != nil {
			if len(line) == 0 && ctx.Err() == nil {
				err = nil // it has gone
			}
			return commands, err
		}
		commands++
		answer, err := s.command(string(line))
		if err != nil {
			answer = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
		} else {
			answer = strings.TrimSpace("ok " + answer)
		}
		if _, err := fmt.Fprintln(conn, answer); err != nil {
			return commands, err
		}
	}
}

// parameters are those of a command.
type parameters struct {
	values map[string]string
	err    error // the first that is wrong
}

// number returns a parameter that is at most most; 0 if it is not there.
func (p *parameters) number(name string, most uint64) uint64 {
	text, ok := p.values[name]
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if (err != nil || n > most) && p.err == nil {
		p.err = fmt.Errorf("%s=%.20s is not a number up to %d", name, text, most)
	}
	return n
}

var errNoPair = errors.New("there is no queue pair yet")

// command carries a line out.
func (s *session) command(line string) (string, error) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return "", errors.New("an empty line")
	}
	p := &parameters{values: map[string]string{}}
	for _, w := range words[1:] {
		name, value, _ := strings.Cut(w, "=")
		p.values[name] = value
	}
	switch words[0] {
	case "hello":
		return s.hello(), nil
	case "qp":
		return s.make(p)
	}
	run, ok := map[string]func(*session, *parameters) (string, error){
		"recv": (*session).recv, "post": (*session).post, "fill": (*session).fill, "mem": (*session).mem,
		"wc": (*session).wc, "state": (*session).state,
	}[words[0]]
	switch {
	case !ok:
		return "", fmt.Errorf("no command %.20q", words[0])
	case s.qp == nil:
		return "", errNoPair
	}
	return run(s, p)
}
