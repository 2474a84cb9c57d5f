package kernel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/path"
	"github.com/gosoftroce/rocev2/e2e/guest"
)

// OverPath returns a function that measures a stream of an operation, "write"
// or "read", over a path: from the rxe of one guest to the other's. The guests
// are booted by the first run, and stay until EndGuests.
func OverPath(c path.Config, op string, size, depth int) func(context.Context, cell.Window) cell.Sample {
	return func(ctx context.Context, w cell.Window) cell.Sample {
		lab, err := guests.open(ctx)
		if err != nil {
			return cell.Failed(err)
		}
		return overPath(ctx, lab, c, stream{op, size, depth, w})
	}
}

// guests are what OverPath boots.
var guests shared

type shared struct {
	mu  sync.Mutex
	lab *guest.Lab
	err error // no second attempt
}

// open returns guests that answer. Emulated ones were seen to stop doing so
// when they had stood idle; others are booted then.
func (s *shared) open(ctx context.Context) (*guest.Lab, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lab != nil && !answer(ctx, s.lab) {
		if err := s.lab.Close(); err != nil {
			return nil, err
		}
		s.lab = nil
	}
	if s.lab == nil && s.err == nil {
		s.lab, s.err = guest.Start(ctx, guest.Options{})
	}
	return s.lab, s.err
}

// answer reports whether all guests run a command.
func answer(ctx context.Context, lab *guest.Lab) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, g := range lab.Guests {
		if _, err := guest.Run(ctx, g, "true"); err != nil {
			return false
		}
	}
	return true
}

// EndGuests ends the guests that OverPath has booted.
func EndGuests() error {
	guests.mu.Lock()
	defer guests.mu.Unlock()
	lab := guests.lab
	guests.lab, guests.err = nil, nil
	if lab == nil {
		return nil
	}
	return lab.Close()
}

// Available says why OverPath cannot boot guests here, "" if it can.
func Available() string { return guest.Missing() }

type stream struct {
	op          string
	size, depth int
	w           cell.Window
}

// args are those of perftest. It leaves out a margin at the beginning and at
// the end of its time, in whole seconds.
func (s stream) args(g *guest.Guest, port int) []string {
	margin := int(math.Ceil(max(s.w.Warm.Seconds(), 1)))
	seconds := int(math.Ceil(s.w.Measure.Seconds())) + 2*margin
	return []string{"ib_" + s.op + "_bw", "-d", "rxe0", "-x", strconv.Itoa(g.GIDIndex(false)), "-F", "-m", "4096", "-Q", "1",
		"-s", strconv.Itoa(s.size), "-t", strconv.Itoa(s.depth), "-D", strconv.Itoa(seconds), "-f", strconv.Itoa(margin), "-p", strconv.Itoa(port)}
}

func overPath(ctx context.Context, lab *guest.Lab, c path.Config, s stream) (r cell.Sample) {
	client, server := lab.Guest("6.12"), lab.Guest("6.1")
	ends, restore, err := lab.Between(ctx, client, server)
	if err != nil {
		return cell.Failed(err)
	}
	defer func() {
		if err := restore(context.WithoutCancel(ctx)); err != nil && r.Err == "" {
			r = cell.Failed(err)
		}
	}()
	c.MTU, c.Frame = guest.FrameMTU, guest.FrameHeader
	p, err := path.Between(c, ends[0], ends[1])
	if err != nil {
		return cell.Failed(err)
	}
	v, err := perftest(ctx, client, server, s)
	p.Close()
	if err != nil {
		return cell.Failed(err)
	}
	n := p.Counts()
	return cell.Sample{Value: v, Count: n.Map()}
}

// perftest runs the client in one guest and the server in the other.
func perftest(ctx context.Context, client, server *guest.Guest, s stream) (float64, error) {
	const port = 20900
	ctx, cancel := context.WithTimeout(ctx, s.w.Total()+time.Minute)
	defer cancel()
	srv, err := server.Start(ctx, s.args(server, port)...)
	if err != nil {
		return 0, fmt.Errorf("server: %w", err)
	}
	if err := server.WaitListen(ctx, port); err != nil {
		return 0, fmt.Errorf("server: %w", err)
	}
	res, err := guest.Run(ctx, client, append(s.args(client, port), server.Addr4.String())...)
	if err == nil && res.Code != 0 {
		err = fmt.Errorf("exit status %d: %s", res.Code, tail(res.Stdout+res.Stderr))
	}
	if err != nil {
		cancel() // ends the server
		_, serverErr := srv.Wait()
		return 0, errors.Join(fmt.Errorf("client: %w", err), serverErr)
	}
	if res, err := srv.Wait(); err != nil || res.Code != 0 {
		return 0, fmt.Errorf("server: %v, %+v", err, res)
	}
	return parsePerftest(res.Stdout, s.size)
}
