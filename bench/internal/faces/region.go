package faces

import (
	"fmt"
	"io"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
	"github.com/gosoftroce/rocev2/rdma"
)

// region exports memory, or reads what is exported.
type region struct{ *base }

const regionName = "memory"

// Hello exports the memory.
func (g *region) Hello() (any, error) {
	addr, err := g.base.Hello()
	f, ok := g.face.(*rdmaFace)
	if err != nil || !ok || g.cfg.Active {
		return addr, err
	}
	_, err = f.l.Export(regionName, rdma.Region{Memory: touched(g.cfg.Size)})
	return addr, err
}

// Run reads the memory as a whole, again and again.
func (g *region) Run(stop <-chan struct{}) (pair.Result, error) {
	r := newResult()
	if !g.cfg.Active {
		g.before = pair.CostsNow()
		go g.accepting(func(c channel) { c.gone(); c.close() })
		<-stop
		g.before.AddTo(&r)
		g.mishaps(&r)
		return r, nil
	}
	d := rdma.Dialer{Device: g.dev}
	c, err := d.Dial(g.ctx, g.peer)
	if err != nil {
		return r, err
	}
	m, err := c.Region(g.ctx, regionName)
	if err != nil {
		return r, err
	}
	if m.Size() != int64(g.cfg.Size) {
		return r, fmt.Errorf("a region of %d bytes, not %d", m.Size(), g.cfg.Size)
	}
	into := []byte(nil)
	if g.cfg.NoCopy {
		into = touched(g.cfg.Size)
	}
	read := func() error {
		if g.cfg.NoCopy {
			return m.Read(g.ctx, into, 0)
		}
		_, err := m.CopyTo(g.ctx, io.Discard, 0, m.Size(), nil)
		return err
	}
	n, took, err := g.measured(1, read)
	if err != nil {
		return r, err
	}
	g.before.AddTo(&r)
	r.Values["messages"] = float64(n)
	r.Values["gbps"] = float64(n) * float64(g.cfg.Size) * 8 / 1e9 / took.Seconds()
	g.mishaps(&r)
	return r, c.Close()
}
