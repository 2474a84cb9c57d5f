package hca

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
)

// Context is a program's share of a device: everything made through it is freed
// when it closes. A device may have many contexts (one for each program that it
// serves).
type Context struct {
	dev    *Device
	quota  objects
	events *eventQueue

	mu     sync.Mutex
	closed bool
	count  objects                        // reserved, made or not
	last   uint32                         // number of the object that was made last
	made   [numKinds]map[io.Closer]uint32 // all but regions, which their domains know, with their numbers
}

// ContextOption adjusts a context.
type ContextOption func(*Context)

// WithQuota bounds how many objects of each kind the context may have. Without
// it the limits of the device are the only ones.
func WithQuota(q Quota) ContextOption {
	return func(c *Context) { c.quota = q.within(c.dev.stock.limits) }
}

// NewContext makes a context.
func (d *Device) NewContext(opts ...ContextOption) (*Context, error) {
	c := &Context{dev: d, quota: d.stock.limits}
	for _, f := range opts {
		f(c)
	}
	for k := range c.made {
		c.made[k] = map[io.Closer]uint32{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosed
	}
	c.events = d.events.add()
	d.contexts[c] = struct{}{}
	return c, nil
}

// reserve counts one more object towards the limits of the context and the
// device. The error wraps ErrNoResources or is ErrClosed.
func (c *Context) reserve(k kind) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	if err := c.count.add(k, c.quota, "context"); err != nil {
		return err
	}
	if err := c.dev.stock.reserve(k); err != nil {
		c.count[k]--
		return err
	}
	return nil
}

// unreserve takes back what reserve has counted.
func (c *Context) unreserve(k kind) {
	c.mu.Lock()
	c.count[k]--
	c.mu.Unlock()
	c.dev.stock.unreserve(k)
}

// enter adds an object that reserve has counted. On an error it is not added,
// and still counted.
func (c *Context) enter(obj io.Closer, k kind) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.last++
	c.made[k][obj] = c.last
	return nil
}

// adopt counts and adds an object.
func (c *Context) adopt(obj io.Closer, k kind) error {
	if err := c.reserve(k); err != nil {
		return err
	}
	err := c.enter(obj, k)
	if err != nil {
		c.unreserve(k)
	}
	return err
}

// release takes an object out that was added.
func (c *Context) release(obj io.Closer, k kind) {
	c.mu.Lock()
	_, there := c.made[k][obj]
	delete(c.made[k], obj)
	c.mu.Unlock()
	if there {
		c.unreserve(k)
	}
}

// forcible is an object whose Close is refused while others use it. Those that
// use it have gone when the context closes it, but for what is being made.
type forcible interface{ close(force bool) error }

// Close frees everything that was made through the context: queue pairs first,
// so that nothing uses what goes after them.
func (c *Context) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	var errs []error
	for _, k := range []kind{kindQP, kindSRQ, kindXRCD, kindCQ, kindChannel, kindPD} {
		for _, obj := range c.members(k) {
			if f, ok := obj.(forcible); ok {
				errs = append(errs, f.close(true))
				continue
			}
			errs = append(errs, obj.Close())
		}
	}
	c.dev.events.remove(c.events)
	c.dev.mu.Lock()
	delete(c.dev.contexts, c)
	c.dev.mu.Unlock()
	return errors.Join(errs...)
}

// members returns the objects of a kind in the order in which they were made.
func (c *Context) members(k kind) []io.Closer {
	c.mu.Lock()
	defer c.mu.Unlock()
	made := c.made[k]
	return slices.SortedFunc(maps.Keys(made), func(a, b io.Closer) int { return cmp.Compare(made[a], made[b]) })
}

// usableBy reports what keeps objects of o from using those of c.
func (c *Context) usableBy(o *Context) error {
	switch {
	case c.dev != o.dev:
		return ErrOtherDevice
	case c != o:
		return errOtherContext
	}
	return nil
}
