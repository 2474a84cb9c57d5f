package programs

import "golang.org/x/sys/unix"

// A process of another PID namespace has no number here. Such processes are
// told apart by the sockets of their copiers, of which each has one, and nobody
// else has that. In place of the number of a process they get one below 0.

// foreigner is a process by its copier's socket.
type foreigner struct {
	socket inode
	uid    uint32
}

type known struct{ number, sessions int }

// identify gives the peer a number if it has none. What is missing is the
// copier, which the library offers when it hears that.
func (s *session) identify(files []received) unix.Errno {
	if s.peer.PID != 0 {
		return 0
	}
	if len(files) != 1 {
		return unix.EPERM
	}
	// Only of a socket is asked who it is: other files may have that wait.
	if _, err := unix.GetsockoptInt(int(files[0]), unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
		return unix.EINVAL
	}
	id, err := inodeOf(files[0])
	if err != nil {
		return unix.EINVAL
	}
	h := s.host
	h.mu.Lock()
	defer h.mu.Unlock()
	who := foreigner{id, s.peer.UID}
	k := h.foreigners[who]
	if k == nil {
		h.foreign++
		k = &known{number: -h.foreign}
		if h.foreigners == nil {
			h.foreigners = map[foreigner]*known{}
		}
		h.foreigners[who] = k
	}
	k.sessions++
	s.peer.PID, s.foreigner = k.number, who
	return 0
}

// forgetForeigner ends what identify has begun. The host's mu is held.
func (s *session) forgetForeigner() {
	k := s.host.foreigners[s.foreigner]
	if k == nil || s.peer.PID >= 0 {
		return
	}
	if k.sessions--; k.sessions == 0 {
		delete(s.host.foreigners, s.foreigner)
	}
}
