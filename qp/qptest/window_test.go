package qptest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

// window is a memory window of a script, or a fast registration region.
type window struct {
	name string
	mw   *memreg.Window
	fast *memreg.FastRegion
}

func (w *window) keys() (lkey, rkey ib.Key) {
	if w.fast != nil {
		return w.fast.LKey(), w.fast.RKey()
	}
	return 0, w.mw.RKey()
}

// slotName returns the name of a key of a window, whatever its low byte, and
// whose it is.
func (s *scene) slotName(k ib.Key) (string, *actor) {
	for _, a := range s.actors {
		for _, w := range a.windows {
			if lkey, rkey := w.keys(); k>>8 == lkey>>8 || k>>8 == rkey>>8 {
				return fmt.Sprintf("%s.%s/%02x", a.name, w.name, uint8(k)), a
			}
		}
	}
	return "", nil
}

// slotKey returns a key of a window: w the current one, w/07 the one that ends
// in 0x07.
func (a *actor) slotKey(name string, local bool) (ib.Key, bool) {
	name, low, chosen := strings.Cut(name, "/")
	for _, w := range a.windows {
		if w.name != name {
			continue
		}
		key, rkey := w.keys()
		if !local {
			key = rkey
		}
		if chosen {
			n, err := strconv.ParseUint(low, 16, 8)
			if err != nil {
				return 0, false
			}
			key = key&^0xff | ib.Key(n)
		}
		return key, true
	}
	return 0, false
}

// invalidate is what a queue pair asks for when a SEND with invalidate has
// arrived. A region whose name is window agrees.
func (s *scene) invalidate(a *actor, key ib.Key) ib.Fault {
	name := s.keyName(key)
	s.printf("%s is asked to invalidate %s", a.name, name)
	if _, owner := s.slotName(key); owner != nil {
		return a.node.table.Invalidate(a.node.pd, a.qpn, key)
	}
	if strings.HasSuffix(name, ".window") {
		return ib.FaultNone
	}
	return ib.FaultNotInvalidatable
}

func (s *scene) pdOf(a *actor, w *args) *memreg.PD {
	if w.text("pd", "") == "other" {
		return a.node.table.AllocPD()
	}
	return a.node.pd
}

// cmdMW: mw b NAME type=1|2 [pd=other]
func (s *scene) cmdMW(words []string) error {
	a, rest, err := s.side(words)
	if err != nil {
		return err
	}
	w := parseArgs(rest)
	typ, err := w.num("type", 2)
	pd := s.pdOf(a, &w)
	if err := errors.Join(err, w.done()); err != nil || len(w.pos) != 1 {
		return errors.Join(err, errors.New("mw SIDE NAME"))
	}
	mw, err := a.node.table.AllocWindow(pd, ib.MWType(typ))
	if err != nil {
		return err
	}
	a.windows = append(a.windows, &window{name: w.pos[0], mw: mw})
	return nil
}

// cmdFast: fast b NAME [max=4096] [pd=other]
func (s *scene) cmdFast(words []string) error {
	a, rest, err := s.side(words)
	if err != nil {
		return err
	}
	w := parseArgs(rest)
	most, err := w.num("max", 4096)
	pd := s.pdOf(a, &w)
	if err := errors.Join(err, w.done()); err != nil || len(w.pos) != 1 {
		return errors.Join(err, errors.New("fast SIDE NAME"))
	}
	f, err := a.node.table.AllocFast(pd, most)
	if err != nil {
		return err
	}
	a.windows = append(a.windows, &window{name: w.pos[0], fast: f})
	return nil
}

func (a *actor) window(name string) (*window, error) {
	for _, w := range a.windows {
		if w.name == name {
			return w, nil
		}
	}
	return nil, fmt.Errorf("%s has no window %q", a.name, name)
}

// cmdMap: map b NAME at=0x700000 len=4096
func (s *scene) cmdMap(words []string) error {
	a, rest, err := s.side(words)
	if err != nil {
		return err
	}
	w := parseArgs(rest)
	at, n := uint64(0x700000), uint64(4096)
	err = w.nums(map[string]*uint64{"at": &at, "len": &n})
	if err := errors.Join(err, w.done()); err != nil || len(w.pos) != 1 {
		return errors.Join(err, errors.New("map SIDE NAME"))
	}
	f, err := a.window(w.pos[0])
	if err != nil {
		return err
	}
	r := &region{name: "mapped", iova: at, bytes: alignedBytes(int(n))}
	if err := f.fast.Map(memreg.Local(r.bytes)); err != nil {
		s.printf("error: %v", err)
		return nil
	}
	a.regions = append(a.regions, r)
	return nil
}

// cmdFree: free b NAME
func (s *scene) cmdFree(words []string) error {
	a, rest, err := s.side(words)
	if err != nil || len(rest) != 1 {
		return errors.Join(err, errors.New("free SIDE NAME"))
	}
	w, err := a.window(rest[0])
	switch {
	case err != nil:
		return err
	case w.mw != nil:
		a.node.table.FreeWindow(w.mw)
		return nil
	}
	if err := a.node.table.FreeFast(w.fast); err != nil {
		s.printf("error: %v", err)
	}
	return nil
}

// postLocal: post a bind-mw id=1 mw=b.w key=07 region=m addr=0x11000 len=100 …
func (s *scene) postLocal(a *actor, op ib.Opcode, w *args) error {
	wr := ib.SendWR{Opcode: op, Signaled: !w.has("unsignaled"), Fence: w.has("fence")}
	var low, n uint64
	_, chosen := w.kv["key"]
	addr := uint64(0x700000)
	err := w.nums(map[string]*uint64{"id": &wr.ID, "addr": &addr, "len": &n})
	low, err2 := strconv.ParseUint(w.text("key", "0"), 16, 8)
	inv, err3 := s.keyOf(w.text("inv", "0"))
	name := w.text("mw", w.text("fast", "0"))
	slot, err4 := s.keyOf(name)
	access, err5 := parseAccess(w.text("access", "wr"))
	region := ib.Key(0)
	if r, err := a.region(w.text("region", "m")); err == nil {
		region = r.lkey
	} else if k, ok := a.slotKey(w.text("region", "m"), true); ok {
		region = k
	}
	delete(w.kv, "region")
	if err := errors.Join(err, err2, err3, err4, err5, w.done()); err != nil {
		return err
	}
	next := slot&^0xff | ib.Key(low)
	if op == ib.OpBindMW && !chosen { // the device chooses, for type 1
		next = slot
	}
	switch op {
	case ib.OpLocalInv:
		wr.InvalidateKey = inv
	case ib.OpBindMW:
		wr.Bind = &ib.BindMW{Window: slot, NewKey: next, Region: region, Addr: addr, Length: n, Access: access}
	case ib.OpRegMR:
		wr.Reg = &ib.RegMR{Region: slot, NewKey: next, Addr: addr, Access: access}
	}
	if err := a.PostSend(&wr); err != nil {
		s.printf("error: %v", err)
	}
	return nil
}
