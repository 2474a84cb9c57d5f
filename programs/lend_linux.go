package programs

import (
	"encoding/binary"
	"time"

	"github.com/gosoftroce/rocev2/uverbs/abi"
)

// A file that goes to another process is open in none while it is on its way:
// whoever sends it may close it at once, and exec closes the connections of a
// process before the new program has one. Then the session that was the last
// one stays for a while.
const (
	sentTime      = 10 * time.Second
	inheritedTime = 2 * time.Second
	lingerTick    = 10 * time.Millisecond
)

// How a file goes (opLend).
const (
	lendSent      = 1 // in a message
	lendInherited = 2 // exec keeps it
)

// maxLent bounds how often a file is on its way at once.
const maxLent = 1 << 20

func (s *session) lend(how uint64) {
	h := s.host
	h.mu.Lock()
	defer h.mu.Unlock()
	switch how {
	case lendSent:
		s.file.lent = min(s.file.lent+1, maxLent)
	case lendInherited:
		s.file.inherited = true
	}
}

// bye notes that the program has closed the file.
func (s *session) bye() {
	s.host.mu.Lock()
	s.parting = true
	s.host.mu.Unlock()
}

// awaited reports whether another process is about to join the file.
func (s *session) awaited() bool {
	h := s.host
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.closed && s.file.uses == 1 && s.file.lent > 0
}

// execs reports whether the process may be becoming another program that has
// the file: it has closed the connection alone.
func (s *session) execs() bool {
	h := s.host
	h.mu.Lock()
	inherits := !h.closed && s.file.uses == 1 && s.file.inherited && s.peer.life != nil
	h.mu.Unlock()
	return inherits && !s.peer.ended()
}

// linger waits at the end of a session until whoever is about to join the file
// has done so, or for as long as that may take.
func (s *session) linger() {
	if s.file == nil {
		return
	}
	h := s.host
	h.mu.Lock()
	said := s.parting
	s.parting = true
	h.mu.Unlock()
	tick := time.NewTicker(lingerTick)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		past := time.Since(began)
		switch {
		case past < sentTime && s.awaited():
		case past < inheritedTime && !said && s.execs():
		default:
			return
		}
	}
}

// What is imported (opImport), in the upper half of the argument. Its handle is
// the lower one.
const (
	importContext = 0
	importPD      = 1
	importMR      = 2
)

// imported answers for what another context of the file has made.
func (s *session) imported(q request) abi.Reply {
	f, ok := s.file.File.(importer)
	if !ok {
		return abi.Fail(abi.EOPNOTSUPP)
	}
	switch handle := uint32(q.arg); q.arg >> 32 {
	case importContext:
		return f.Import(s.peer, q.payload)
	case importPD:
		if f.HasPD(handle) {
			return abi.Reply{}
		}
	case importMR:
		if lkey, rkey, n, ok := f.Keys(handle); ok {
			b := binary.NativeEndian.AppendUint64(nil, n)
			b = binary.NativeEndian.AppendUint32(b, lkey)
			return abi.Reply{Resp: binary.NativeEndian.AppendUint32(b, rkey)}
		}
	}
	return abi.Fail(abi.EINVAL)
}
