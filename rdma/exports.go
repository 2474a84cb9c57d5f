package rdma

import (
	"errors"

	"github.com/gosoftroce/rocev2/memreg/mapping"
	"github.com/gosoftroce/rocev2/verbs"
)

// Export exports a region from now on, and returns its memory, as the first
// device has it. The error wraps ErrExported, or says what is wrong.
func (l *Listener) Export(name string, r Region) (*verbs.MR, error) {
	mr, err := l.export(name, r)
	if err != nil {
		return nil, &OpError{Op: "export", Name: name, Err: err}
	}
	return mr, nil
}

// export exports a region at each door where it may be had: the memory is one,
// and each door has a key of its own for it. Fresh memory of several doors is
// the listener's, since a device that is closed takes its own with it.
func (l *Listener) export(name string, r Region) (first *verbs.MR, err error) {
	l.exporting.Lock()
	defer l.exporting.Unlock()
	var fresh *mapping.Mapping
	if len(l.doors) > 1 && r.Memory == nil && r.File == nil && r.Size > 0 {
		if fresh, err = mapping.Anonymous(r.Size, mapping.Options{Reserve: true}); err != nil {
			return nil, err
		}
		r.Memory = fresh.Data()
	}
	onlySecured := r.Secured || len(r.AllowNames) > 0
	if onlySecured && l.cfg.TLS == nil {
		return nil, errors.New("a region for secured connections alone, and the listener has no TLS configuration")
	}
	for i, d := range l.doors {
		if onlySecured && !d.secured {
			continue
		}
		mr, err := d.exports.export(name, r)
		if err != nil {
			unexport(l.doors[:i], name)
			if fresh != nil {
				fresh.Close()
			}
			return nil, err
		}
		if first == nil {
			first = mr
		}
	}
	if fresh != nil {
		if l.fresh == nil {
			l.fresh = map[string]*mapping.Mapping{}
		}
		l.fresh[name] = fresh
	}
	return first, nil
}

// Unexport ends the export of a region. A client that uses it after that loses
// its connection, with ErrRefused. The error wraps ErrUnknownRegion.
func (l *Listener) Unexport(name string) error {
	l.exporting.Lock()
	defer l.exporting.Unlock()
	if err := unexport(l.doors, name); err != nil {
		return &OpError{Op: "unexport", Name: name, Err: err}
	}
	if m := l.fresh[name]; m != nil {
		m.Close()
		delete(l.fresh, name)
	}
	return nil
}

// unexport ends the export at those of the doors that have it.
func unexport(doors []*door, name string) (err error) {
	none := true
	for _, d := range doors {
		e := d.exports.unexport(name)
		if errors.Is(e, ErrUnknownRegion) {
			continue
		}
		none = false
		if err == nil {
			err = e
		}
	}
	if none {
		return ErrUnknownRegion
	}
	return err
}

// dropMemory frees the memory of regions. The devices have none of it any more.
func (l *Listener) dropMemory() {
	l.exporting.Lock()
	defer l.exporting.Unlock()
	for name, m := range l.fresh {
		m.Close()
		delete(l.fresh, name)
	}
}
