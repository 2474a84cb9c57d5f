package hca

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

// MW is a memory window.
type MW struct {
	pd   *PD
	core *memreg.Window

	closing closing
}

// AllocMW makes a memory window that is not bound (IBTA 11.2.8.9).
func (pd *PD) AllocMW(typ ib.MWType) (*MW, error) {
	mw := &MW{pd: pd}
	err := pd.make(kindMW, func(t *memreg.Table) (err error) {
		if mw.core, err = t.AllocWindow(pd.core, typ); err == nil {
			pd.windows[mw] = struct{}{}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return mw, nil
}

// Core returns the window as queue pairs know it.
func (mw *MW) Core() *memreg.Window { return mw.core }

// Close frees the window, bound or not. Its key is dead at once, and when Close
// returns no transfer goes through it any more.
func (mw *MW) Close() error { return mw.closing.do(mw.close) }

func (mw *MW) close() (done bool, err error) {
	pd := mw.pd
	d := pd.owner.dev
	d.mu.Lock()
	d.mem.FreeWindow(mw.core)
	d.mu.Unlock()
	pd.mu.Lock()
	delete(pd.windows, mw)
	pd.mu.Unlock()
	pd.owner.unreserve(kindMW)
	return true, nil
}

// FastMR is a region that a work request registers. It counts as a region.
type FastMR struct {
	pd   *PD
	core *memreg.FastRegion

	closing closing
}

// AllocFastMR makes a fast registration region of at most the given number of
// bytes (IBTA 11.2.8.4).
func (pd *PD) AllocFastMR(most uint64) (*FastMR, error) {
	f := &FastMR{pd: pd}
	err := pd.make(kindMR, func(t *memreg.Table) (err error) {
		if f.core, err = t.AllocFast(pd.core, most); err == nil {
			pd.fasts[f] = struct{}{}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Core returns the region as queue pairs know it.
func (f *FastMR) Core() *memreg.FastRegion { return f.core }

// Close frees the region, valid or not; as MR.Close.
func (f *FastMR) Close() error { return f.closing.do(f.close) }

func (f *FastMR) close() (done bool, err error) {
	pd := f.pd
	d := pd.owner.dev
	d.mu.Lock()
	err = d.mem.FreeFast(f.core)
	d.mu.Unlock()
	if err != nil {
		return false, err
	}
	pd.mu.Lock()
	delete(pd.fasts, f)
	pd.mu.Unlock()
	pd.owner.unreserve(kindMR)
	return true, nil
}
