package qptest

import (
	"errors"
	"strconv"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// disk is memory that is backed by a file, and records what is brought there.
type disk struct {
	memreg.Memory
	persisted []span
	broken    bool // what is brought there fails
}

func (d *disk) Persistent() bool { return true }

func (d *disk) Persist(off, n uint64) error {
	if d.broken {
		return errors.New("no space left on device")
	}
	d.persisted = append(d.persisted, span{int(off), int(n)})
	return nil
}

// The words of a FLUSH.
var (
	flushTypes  = map[string]rocev2.FlushType{"none": 0, "global": 1, "persistent": 2, "both": 3}
	flushLevels = map[string]rocev2.FlushLevel{"range": 0, "region": 1}
)

// readFlush reads type=, level= and flush=LENGTH of a FLUSH.
func readFlush(w *args, wr *ib.SendWR) error {
	n, err := w.num("flush", 64)
	wr.Length = uint32(n)
	var ok [2]bool
	wr.FlushType, ok[0] = flushTypes[w.text("type", "global")]
	wr.FlushLevel, ok[1] = flushLevels[w.text("level", "range")]
	if !ok[0] || !ok[1] {
		return errors.Join(err, errors.New("type=global|persistent|both level=range|region"))
	}
	return err
}

// flushName prints a type or a level, as the notation has it.
func flushName[T rocev2.FlushType | rocev2.FlushLevel](names map[string]T, v T) string {
	for s, n := range names {
		if n == v {
			return s
		}
	}
	return strconv.Itoa(int(v))
}

// flushValue reads what flushName prints.
func flushValue[T rocev2.FlushType | rocev2.FlushLevel](names map[string]T, s string) (T, error) {
	if v, ok := names[s]; ok {
		return v, nil
	}
	n, err := strconv.ParseUint(s, 0, 4)
	return T(n), err
}

// cmdPersist: persist b [fail] [again]: the memory that b waits for is brought
// to its disk, or cannot be; again has the driver say so twice.
func (s *scene) cmdPersist(words []string) error {
	a, rest, err := s.sideWithQP(words)
	if err != nil {
		return err
	}
	w := parseArgs(rest)
	f, ok := a.PollFetch()
	if !ok {
		s.printf("nothing")
		return w.done()
	}
	for _, r := range a.regions {
		if r.reg == f.Region && f.Persist {
			r.disk.broken = w.has("fail")
		}
	}
	f.Fault = f.Fetch()
	for _, r := range a.regions {
		if r.reg == f.Region {
			s.printf("%s+%#x len=%d: %v", r.name, f.Off, f.Len, f.Fault)
		}
	}
	a.Fetched(s.now, f)
	if w.has("again") {
		a.Fetched(s.now, f)
	}
	return w.done()
}
