package rawudp

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/pair"
	"github.com/gosoftroce/rocev2/bench/internal/stats"
)

// echo is one end of the round trips.
type echo struct{ *end }

// Run answers, or asks and measures.
func (e *echo) Run(stop <-chan struct{}) (pair.Result, error) {
	runtime.LockOSThread()
	if err := e.accept(); err != nil {
		return pair.Result{}, err
	}
	if !e.cfg.Spin { // a blocked system call ends now and then, to see whether to stop
		tv := unix.NsecToTimeval(int64(200 * time.Millisecond))
		if err := unix.SetsockoptTimeval(e.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
			return pair.Result{}, err
		}
	}
	if e.cfg.Active {
		return e.ask()
	}
	return pair.Result{}, e.answer(stop)
}

func (e *echo) flags() int {
	if e.cfg.Spin {
		return unix.MSG_DONTWAIT
	}
	return 0
}

func (e *echo) answer(stop <-chan struct{}) error {
	b := make([]byte, e.cfg.Segment)
	for i := 0; ; i++ {
		n, errno := e.recvfrom(b, e.flags())
		switch errno {
		case 0:
			if n == 0 { // the end of a connection
				<-stop
				return nil
			}
			if errno := e.sendto(b[:n], 0); errno != 0 {
				return fmt.Errorf("answering: %w", errno)
			}
			continue
		case unix.EAGAIN, unix.EINTR:
		default:
			return fmt.Errorf("receiving: %w", errno)
		}
		if i%1024 == 0 || !e.cfg.Spin {
			select {
			case <-stop:
				return nil
			default:
			}
		}
	}
}

func (e *echo) ask() (pair.Result, error) {
	b := make([]byte, e.cfg.Segment)
	times := make([]uint32, 0, 1<<20)
	begin := time.Now()
	for {
		t0 := time.Now()
		if errno := e.sendto(b, 0); errno != 0 {
			return pair.Result{}, fmt.Errorf("asking: %w", errno)
		}
		for {
			n, errno := e.recvfrom(b, e.flags())
			if errno == 0 && n > 0 {
				break
			}
			if errno == 0 {
				return pair.Result{}, errors.New("the other side has closed the connection")
			}
			if errno != unix.EAGAIN && errno != unix.EINTR {
				return pair.Result{}, fmt.Errorf("receiving: %w", errno)
			}
			if time.Since(t0) > time.Second {
				return pair.Result{}, errors.New("no answer in a second")
			}
		}
		now := time.Now()
		switch t := now.Sub(begin); {
		case t < e.cfg.Warm:
		case t < e.cfg.Warm+e.cfg.Measure && len(times) < cap(times):
			times = append(times, uint32(min(now.Sub(t0), time.Second)))
		default:
			return pair.Result{Values: map[string]float64{
				"half_us":     stats.Percentile(times, 50) / 2e3,
				cell.P99:      stats.Percentile(times, 99) / 2e3,
				cell.P999:     stats.Percentile(times, 99.9) / 2e3,
				"max_us":      stats.Percentile(times, 100) / 1e3,
				"round_trips": float64(len(times)),
			}}, nil
		}
	}
}
