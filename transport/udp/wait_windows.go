package udp

import (
	"errors"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/gosoftroce/rocev2/transport"
)

// waiter is the state of Wait: an event that the sockets of the link set when
// something comes, and that wakes it. It resets itself when a Wait ends. A
// receive that leaves something sets it again.
type waiter struct {
	mu     sync.RWMutex // held for reading while the event is used
	event  windows.Handle
	closed bool
	own    *ipSocket
}

func (w *waiter) init(own *ipSocket) (err error) {
	if w.event, err = windows.CreateEvent(nil, 0, 0, nil); err != nil {
		return os.NewSyscallError("CreateEvent", err)
	}
	w.own = own
	if err := w.add(own); err != nil {
		return errors.Join(err, w.close())
	}
	return nil
}

// add has Wait watch a socket. It does not block any more.
func (w *waiter) add(s *ipSocket) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		return transport.ErrClosed
	}
	var err error
	e := s.use(func(h windows.Handle) {
		if r, _, why := wsaEventSelect.Call(uintptr(h), uintptr(w.event), fdRead); r != 0 {
			err = os.NewSyscallError("WSAEventSelect", why)
		}
	})
	return errors.Join(e, err)
}

// wait waits until a socket has something or wake is called.
func (w *waiter) wait(l *Link) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		return transport.ErrClosed
	}
	most := w.own.asleep()
	for _, m := range l.groups.members() {
		if d := m.asleep(); d > 0 && (most == 0 || d < most) {
			most = d
		}
	}
	timeout := uint32(windows.INFINITE)
	if most > 0 {
		timeout = uint32(most / time.Millisecond)
	}
	_, err := windows.WaitForSingleObject(w.event, timeout)
	l.rx.more.Store(true) // until a Recv: the event is reset, whether there is one or not
	return os.NewSyscallError("WaitForSingleObject", err)
}

// wake makes a wait return.
func (w *waiter) wake() {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if !w.closed {
		_ = windows.SetEvent(w.event) // of a handle that is open
	}
}

// close waits for the end of a wait, which was woken.
func (w *waiter) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	return os.NewSyscallError("CloseHandle", windows.CloseHandle(w.event))
}

// networkOrder returns a number whose bytes in memory are in network order.
func networkOrder(v uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&v))
	return uint16(b[0])<<8 | uint16(b[1])
}
