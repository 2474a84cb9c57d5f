package perftest

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/control"
	"github.com/gosoftroce/rocev2/verbs"
)

// greeting is what the two sides say before either has made a queue pair.
type greeting struct {
	version     string // the peer's
	own         bool   // it is this software
	cycle, line int    // bytes in which addresses go round, and their least step
	mtu         verbs.MTU
	secured     *Secured // nil: nothing is
	first       []byte   // the first address message, which a server has already read
}

const (
	pageSize  = 4096 // of the machine, as announced
	cacheLine = 64
)

// greet exchanges version, page size, cache line size and path MTU, and takes
// the first address of a client: then it is known whether the peer speaks this
// protocol, may be talked to, and runs the same test.
func greet(ctx context.Context, ctl *control.Conn, dev *verbs.Device, c *Config) (greeting, error) {
	var g greeting
	var b [versionLen]byte
	var err error
	if g.secured, err = c.secure(ctx, ctl); err != nil {
		return g, err
	}
	err = exchangeVersion(ctx, ctl, appendVersion(nil, !c.plain), b[:])
	if err != nil {
		return g, err
	}
	if g.version, g.own, err = parseVersion(b[:]); err != nil {
		return g, err
	}
	if g.own = g.own && !c.plain; g.own {
		agree := compareParams
		if c.adopt > 0 {
			agree = adoptParams
		}
		if err := agree(ctx, ctl, dev, c); err != nil {
			return g, err
		}
	}
	if g.cycle, err = agreeNumber(ctx, ctl, "page size", pageSize, maxCycle); err != nil {
		return g, err
	}
	if g.line, err = agreeNumber(ctx, ctl, "cache line size", cacheLine, maxCacheLine); err != nil {
		return g, err
	}
	m := b[:mtuLen]
	if err := ctl.Exchange(ctx, "path MTU", appendMTU(nil, c.MTU), m); err != nil {
		return g, err
	}
	theirs, err := parseMTU(m)
	if err != nil {
		return g, err
	}
	g.mtu = min(c.MTU, theirs)
	if ctl.Role() == interop.Client {
		return g, nil
	}
	const step = "first address"
	if g.first, err = c.readAddress(ctx, ctl.Read, step); err != nil {
		return g, err
	}
	a, err := c.parseAddress(step, g.first)
	if err != nil {
		return g, err
	}
	return g, c.checkFirst(a, ctl, dev)
}

// checkFirst checks the first address of a client. Where the connection manager
// connects the queue pairs, it is empty.
func (c *Config) checkFirst(a Address, ctl *control.Conn, dev *verbs.Device) error {
	empty := a == Address{}
	switch {
	case c.CM == CMAll && !empty:
		return errors.New("the two sides run different tests: only this side connects its queue pairs by the connection manager (-R)")
	case c.CM == CMControl && empty:
		return errors.New("the two sides run different tests: only the other side connects its queue pairs by the connection manager (-R)")
	case c.CM == CMAll:
		return nil
	}
	return checkAddress(a, ctl, dev, c)
}

// exchangeVersion exchanges the version, the client first. The number at its
// beginning is read by itself, since a peer that speaks another protocol may
// send no more.
func exchangeVersion(ctx context.Context, ctl *control.Conn, mine, theirs []byte) error {
	const step, head = "version", 4
	if ctl.Role() == interop.Client {
		if err := ctl.Write(ctx, step, mine); err != nil {
			return err
		}
	}
	if err := ctl.Read(ctx, step, theirs[:head]); err != nil {
		return leftEarly(err, ctl.Role())
	}
	if !bytes.Contains(theirs[:head], []byte{'.'}) {
		return badVersion(theirs[:head])
	}
	if err := ctl.Read(ctx, step, theirs[head:]); err != nil {
		return control.Whole(err, theirs, head, fmt.Sprintf("%d bytes", len(theirs)))
	}
	if ctl.Role() == interop.Server {
		return ctl.Write(ctx, step, mine)
	}
	return nil
}

// compareParams exchanges what must be alike on both sides.
func compareParams(ctx context.Context, ctl *control.Conn, _ *verbs.Device, c *Config) error {
	var b [paramsLen]byte
	mine := c.params()
	if err := ctl.Exchange(ctx, "parameters", mine.append(nil), b[:]); err != nil {
		return err
	}
	theirs, err := parseParams(b[:])
	if err != nil {
		return err
	}
	return mine.differs(theirs, ctl.Role())
}

// adoptParams lets a server run what its client says.
func adoptParams(ctx context.Context, ctl *control.Conn, dev *verbs.Device, c *Config) error {
	const step = "parameters"
	var b [paramsLen]byte
	if err := ctl.Read(ctx, step, b[:]); err != nil {
		return err
	}
	theirs, err := parseParams(b[:])
	if err != nil {
		return err
	}
	own := theirs.config()
	own.Peers, own.MTU, own.HandshakeTimeout, own.IdleTimeout = c.Peers, c.MTU, c.HandshakeTimeout, c.IdleTimeout
	own.OnStart, own.OnResult, own.OnProgress = c.OnStart, c.OnResult, c.OnProgress
	if own.Service == interop.UD && own.Size == DefaultSizeBW {
		own.Size = 0 // both sides make it fit the path MTU
	}
	if own.QPs > maxAnswered || int64(own.QPs)*int64(own.Size) > int64(c.adopt) {
		return interop.BadConfig("%d queue pairs with messages of %d bytes are more than this server gives one client (%d queue pairs, %d bytes of memory)", own.QPs, own.Size, maxAnswered, c.adopt)
	}
	if *c, err = own.withDefaults(dev); err != nil {
		return err
	}
	mine := c.params()
	if err := mine.differs(theirs, interop.Server); err != nil {
		return err
	}
	return ctl.Write(ctx, step, mine.append(nil))
}

// leftEarly adds why a server may close the connection without a word.
func leftEarly(err error, role interop.Role) error {
	var pe *interop.ProtocolError
	if role == interop.Client && errors.As(err, &pe) && len(pe.Got) == 0 && errors.Is(err, interop.ErrPeerClosed) {
		return fmt.Errorf("%w (it may be a server of another program, or one that serves another client)", err)
	}
	return err
}

// agreeNumber exchanges a number of which both sides take the larger.
func agreeNumber(ctx context.Context, ctl *control.Conn, step string, mine, most int) (int, error) {
	var b [numberLen]byte
	if err := ctl.Exchange(ctx, step, appendNumber(nil, mine), b[:]); err != nil {
		return 0, err
	}
	theirs, err := parseNumber(step, b[:], most)
	if err != nil {
		return 0, err
	}
	return max(mine, theirs), nil
}

// readAddress receives an address message, in the form of the run.
func (c *Config) readAddress(ctx context.Context, read func(context.Context, string, []byte) error, step string) ([]byte, error) {
	if c.binary() {
		b := make([]byte, binaryLen)
		return b, read(ctx, step, b)
	}
	b := make([]byte, addressLen)
	return b, readAddress(ctx, read, step, b)
}

// readAddress receives an address message as text. The form without a GID is
// shorter, and a peer that sent it sends no more.
func readAddress(ctx context.Context, read func(context.Context, string, []byte) error, step string, b []byte) error {
	err := read(ctx, step, b[:shortAddressLen])
	if err != nil {
		return err
	}
	if isShortAddress(b) {
		return &interop.ProtocolError{
			Step: step, Got: b[:shortAddressLen],
			Want: "an address with a GID, 108 bytes: the peer runs without one, start it with a GID index (-x)",
		}
	}
	return control.Whole(read(ctx, step, b[shortAddressLen:]), b, shortAddressLen, addressForm)
}

// checkAddress returns nil if this side may have a connection with the peer at
// the GID that it names.
func checkAddress(a Address, ctl *control.Conn, dev *verbs.Device, c *Config) error {
	if err := a.GID.CheckPeer(dev.Addr()); err != nil {
		return err
	}
	return c.Peers.Check(a.GID, ctl.Peer())
}
