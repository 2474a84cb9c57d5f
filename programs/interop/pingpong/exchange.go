package pingpong

import (
	"context"
	"fmt"
	"slices"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/control"
	"github.com/gosoftroce/rocev2/programs/interop/internal/lanes"
	"github.com/gosoftroce/rocev2/verbs"
)

const addressStep = "address"

// readFirst receives the first address of a peer and checks it.
func readFirst(ctx context.Context, ctl *control.Conn, dev *verbs.Device, c *Config) (Address, error) {
	a, err := readAddress(ctx, ctl, c.traits().form)
	if err != nil {
		return a, err
	}
	return a, checkAddress(a, ctl, dev, c)
}

// readAddress receives an address message. It reads the first bytes by
// themselves, since a peer that speaks another protocol may send no more.
func readAddress(ctx context.Context, ctl *control.Conn, f form) (Address, error) {
	const head = lidDigits + 1
	b := make([]byte, f.size())
	if err := ctl.Read(ctx, addressStep, b[:head]); err != nil {
		return Address{}, err
	}
	if _, ok := parseHex(b[:lidDigits]); !ok || b[lidDigits] != ':' {
		return Address{}, &interop.ProtocolError{Step: addressStep, Got: b[:head], Want: f.String()}
	}
	if err := ctl.Read(ctx, addressStep, b[head:]); err != nil {
		return Address{}, control.Whole(err, b, head, f.String())
	}
	return f.parse(b)
}

// checkAddress returns nil if this side may have a connection with the peer at
// the GID that it names.
func checkAddress(a Address, ctl *control.Conn, dev *verbs.Device, c *Config) error {
	if err := a.GID.CheckPeer(dev.Addr()); err != nil {
		return err
	}
	return c.Peers.Check(a.GID, ctl.Peer())
}

// readRest receives the addresses after the first one, and returns those of
// queue pairs.
func (s *session) readRest(ctx context.Context, first Address) ([]Address, error) {
	t := s.cfg.traits()
	list := []Address{first}
	for i := 1; i < t.addresses; i++ {
		a, err := readAddress(ctx, s.ctl, t.form)
		if err != nil {
			return nil, fmt.Errorf("address %d of %d, as %s sends: %w", i+1, t.addresses, t.tool, err)
		}
		switch {
		case a.unused() != (i >= s.cfg.QPs):
			return nil, s.otherCount(i, a)
		case a.unused():
			continue
		}
		if err := checkAddress(a, s.ctl, s.dev, &s.cfg); err != nil {
			return nil, fmt.Errorf("address %d of %d: %w", i+1, s.cfg.QPs, err)
		}
		list = append(list, a)
	}
	return list, nil
}

// otherCount says that the peer has another number of queue pairs. at is the
// index of an address that shows it.
func (s *session) otherCount(at int, a Address) error {
	theirs := fmt.Sprintf("%d", at)
	if !a.unused() {
		theirs = fmt.Sprintf("at least %d", at+1)
	}
	return fmt.Errorf("the two sides run different tests: queue pairs (-q): %d here, %s there", s.cfg.QPs, theirs)
}

// addresses returns what this side tells the peer: one address for each queue
// pair.
func (s *session) addresses() []Address {
	list := make([]Address, s.cfg.QPs)
	for i := range list {
		l := &s.lanes.Lanes[i]
		own := l.Send.Endpoint()
		list[i] = Address{QPN: l.Recv.QPN(), PSN: own.PSN, GID: interop.GIDOf(own.Addr)}
		if s.cfg.traits().form == extendedForm {
			list[i].Initiator, list[i].SRQN = own.QPN, s.lanes.SRQN()
		}
	}
	return list
}

// messages returns the address messages as they are sent: the unused ones are
// all zero.
func (t *traits) messages(list []Address) []byte {
	b := make([]byte, 0, t.addresses*t.form.size())
	for i := range t.addresses {
		var a Address
		if i < len(list) {
			a = list[i]
		}
		b = t.form.append(b, a)
	}
	return b
}

// exchange tells each side the addresses of the other. The server is ready to
// receive and to send before it answers; the client says "done" before it
// connects.
func (s *session) exchange(ctx context.Context, first Address) (err error) {
	t := s.cfg.traits()
	local := s.addresses()
	if s.role == interop.Client {
		if err := s.ctl.Write(ctx, addressStep, t.messages(local)); err != nil {
			return err
		}
		if first, err = readFirst(ctx, s.ctl, s.dev, &s.cfg); err != nil {
			return err
		}
	}
	remote, err := s.readRest(ctx, first)
	if err != nil {
		return err
	}
	if s.cfg.OnAddresses != nil {
		s.cfg.OnAddresses(slices.Clone(local), slices.Clone(remote))
	}
	if s.role == interop.Client {
		if t.end == endBeforeRun {
			if err := s.ctl.Write(ctx, endStep, []byte(done)); err != nil {
				return err
			}
			s.ctl.Close()
		}
		return s.connect(ctx, remote)
	}
	if err := s.connect(ctx, remote); err != nil {
		return err
	}
	if err := s.ctl.Write(ctx, addressStep, t.messages(local)); err != nil || t.end == endAfterRun {
		return err
	}
	if err := s.readEnd(ctx, done); err != nil {
		return err
	}
	s.ctl.Close()
	return nil
}

// connect makes the lanes ready for both directions.
func (s *session) connect(ctx context.Context, remote []Address) error {
	for i, a := range remote {
		p := lanes.Peer{Addr: a.GID.Addr(), SendQPN: a.QPN, SendPSN: a.PSN, RecvQPN: a.QPN, RecvPSN: a.PSN, SRQN: a.SRQN}
		if s.cfg.traits().form == extendedForm {
			p.SendQPN = a.Initiator
		}
		if err := s.lanes.Connect(ctx, i, p, s.connectConfig()); err != nil {
			return err
		}
	}
	return nil
}

// What the two sides say at the end of the control connection.
const (
	done = "done\x00"
	end  = "END\x00"

	endStep = "end of the exchange"
)

func (s *session) readEnd(ctx context.Context, want string) error {
	b := make([]byte, len(want))
	if err := s.ctl.Read(ctx, endStep, b); err != nil {
		return err
	}
	if string(b) != want {
		return &interop.ProtocolError{Step: endStep, Got: b, Want: fmt.Sprintf("%q", want)}
	}
	return nil
}

// farewell lets neither side leave before the other is through, the client
// first.
func (s *session) farewell(ctx context.Context) error {
	if s.role == interop.Client {
		if err := s.ctl.Write(ctx, endStep, []byte(end)); err != nil {
			return err
		}
		return s.readEnd(ctx, end)
	}
	if err := s.readEnd(ctx, end); err != nil {
		return err
	}
	return s.ctl.Write(ctx, endStep, []byte(end))
}
