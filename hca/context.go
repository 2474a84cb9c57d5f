package hca

import (
	"errors"
	"io"
	"sync"
)

// Context is a program's share of a device: everything made through it is freed
// when it closes. A device may have many contexts (one for each program that it
// serves).
type Context struct {
	dev *Device

	mu       sync.Mutex
	closed   bool
	qps      map[io.Closer]struct{}
	cqs      map[io.Closer]struct{}
	channels map[io.Closer]struct{}
	pds      map[io.Closer]struct{}
}

// NewContext makes a context.
func (d *Device) NewContext() (*Context, error) {
	o := &Context{
		dev:      d,
		qps:      map[io.Closer]struct{}{},
		cqs:      map[io.Closer]struct{}{},
		channels: map[io.Closer]struct{}{},
		pds:      map[io.Closer]struct{}{},
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosed
	}
	d.contexts[o] = struct{}{}
	return o, nil
}

// adopt enters an object into one of the context's sets.
func (o *Context) adopt(obj io.Closer, set *map[io.Closer]struct{}, limit int, what string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return ErrClosed
	}
	if len(*set) >= limit {
		return limitError(what, limit)
	}
	(*set)[obj] = struct{}{}
	return nil
}

func (o *Context) release(obj io.Closer, set *map[io.Closer]struct{}) {
	o.mu.Lock()
	delete(*set, obj)
	o.mu.Unlock()
}

// Close frees everything that was made through the context: queue pairs first,
// so that nothing uses what goes after them.
func (o *Context) Close() error {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	var errs []error
	for _, set := range []*map[io.Closer]struct{}{&o.qps, &o.cqs, &o.channels, &o.pds} {
		for _, obj := range o.members(set) {
			errs = append(errs, obj.Close())
		}
	}
	o.dev.mu.Lock()
	delete(o.dev.contexts, o)
	o.dev.mu.Unlock()
	return errors.Join(errs...)
}

func (o *Context) members(set *map[io.Closer]struct{}) []io.Closer {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make([]io.Closer, 0, len(*set))
	for obj := range *set {
		out = append(out, obj)
	}
	return out
}
