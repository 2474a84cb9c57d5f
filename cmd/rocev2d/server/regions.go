package server

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/internal/loglimit"
	"github.com/gosoftroce/rocev2/internal/regular"
	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// region is an exported region on one device.
type region struct {
	cfg     config.Region
	device  string
	size    int
	opened  atomic.Uint64 // times that a client got its key
	refused atomic.Uint64 // times that a client did not
}

// regionInfo is a region in a list.
type regionInfo struct {
	Name    string   `json:"name"`
	Device  string   `json:"device"`
	Size    int      `json:"size"`
	File    string   `json:"file,omitempty"`
	Access  string   `json:"access"`
	Allow   []string `json:"allow"`
	TLS     bool     `json:"tls"` // only secured connections get it
	Opened  uint64   `json:"opened"`
	Refused uint64   `json:"refused"`
}

func (r *region) info() regionInfo {
	i := regionInfo{
		Name: r.cfg.Name, Device: r.device, Size: r.size, File: r.cfg.File, Access: string(r.cfg.Access),
		Allow: []string{}, TLS: r.cfg.Secured(), Opened: r.opened.Load(), Refused: r.refused.Load(),
	}
	switch {
	case r.cfg.Any:
		i.Allow = append(i.Allow, "any")
	case len(r.cfg.Allow)+len(r.cfg.Names) == 0:
		i.Allow = append(i.Allow, "loopback")
	default:
		for _, p := range r.cfg.Allow {
			i.Allow = append(i.Allow, p.String())
		}
		for _, n := range r.cfg.Names {
			i.Allow = append(i.Allow, string(n))
		}
	}
	return i
}

// exporter serves the regions of one device.
type exporter struct {
	records *records
	memory  func(*config.Region) ([]byte, error) // of a region without a file
	d       *device
	ln      *rdma.Listener
	wg      sync.WaitGroup
	cancel  context.CancelFunc

	refusals *loglimit.Limit

	mu   sync.RWMutex
	list map[string]*region
}

const (
	maxRegionClients = 1 << 14
	regionMessage    = 4096 // bytes: clients send nothing but questions
)

// serve takes clients. What they do with the regions they do without us: a
// client is there until its connection ends.
func (e *exporter) serve(ctx context.Context) {
	for {
		c, err := e.ln.Accept(ctx)
		if err != nil {
			return // it was closed, or ctx has ended
		}
		v, err := e.records.admit(serviceRegions, e.d.addr(), c.RemoteAddr(), maxRegionClients)
		e.wg.Go(func() {
			if err != nil { // full since it was admitted
				c.Close()
				return
			}
			v.Is("", uint32(c.QPN()))
			if state, ok := c.ConnectionState(); ok {
				v.Secured(&state)
			}
			<-c.Done()
			c.Close()
			v.Leave(time.Now(), serviceRegions, "", ended(c.Err()))
		})
	}
}

// admit decides whether a client may come at all, before anything is made for
// it: it speaks the protocol, may have one of the regions, and there is room.
func (e *exporter) admit(client netip.Addr, foreign bool) error {
	switch {
	case e.records.draining.Load():
		// A client that waits for a server waits for the next one.
		return &rdma.RejectedError{Reason: cm.ReasonNoResources, PrivateData: []byte(errDraining.Error())}
	case foreign:
		e.records.visits.refuse(serviceRegions)
		return errForeign
	case !e.allows(client):
		e.records.visits.refuse(serviceRegions)
		return errNotAllowed
	}
	return e.records.visits.room(serviceRegions, client.String(), maxRegionClients)
}

var (
	errForeign    = errors.New("regions are for clients that speak the protocol of package rdma, such as \"rocev2 region\"")
	errNotAllowed = errors.New("no region of this daemon is for this address (allow)")
)

// allows reports whether a client may have a region, by its address, or by a
// certificate that it has not shown yet. While there are none it may see that.
func (e *exporter) allows(client netip.Addr) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, r := range e.list {
		if len(r.cfg.Names) > 0 || r.cfg.Allowed(client) {
			return true
		}
	}
	return len(e.list) == 0
}

// ended returns what went wrong with a connection: nothing where one of the two
// sides has closed it.
func ended(err error) error {
	if errors.Is(err, rdma.ErrPeerClosed) || errors.Is(err, errNetClosed) {
		return nil
	}
	return err
}

// asked counts a client's request for a region.
func (e *exporter) asked(client netip.Addr, name string, granted bool) {
	e.mu.RLock()
	r := e.list[name]
	e.mu.RUnlock()
	switch {
	case granted && r != nil:
		r.opened.Add(1)
		return
	case r != nil:
		r.refused.Add(1)
	}
	what := fmt.Sprintf("a client asked for region %s, which does not exist", strconv.Quote(clip(name)))
	remedy := "\"rocev2 region ls\" shows the names"
	if r != nil {
		what = fmt.Sprintf("a client asked for region %s, which it may not have", name)
		remedy = "if it should have it, put its address on the list allow of the region, and reload"
		if r.cfg.Secured() {
			remedy = "only secured connections get the region (rocev2 region --tls-cert); if the client should have it, put its address or a name of its certificate on the list allow, and reload"
		}
	}
	e.records.problem(Problem{Device: e.d.addr(), Source: serviceRegions, Peer: client.String(), What: what, Meaning: "the client was refused", Remedy: remedy})
}

// wants reports whether the device is to have a region.
func (e *exporter) wants(r *config.Region) bool {
	return r.Device == "" || r.Device == e.d.cfg.Address || r.Device == e.d.addr()
}

// uses reports whether a region without a file has that name.
func (e *exporter) uses(name string) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	r := e.list[name]
	return r != nil && r.cfg.File == ""
}

// wanted returns the regions that the device is to have, by name.
func (e *exporter) wanted(c *config.Config) map[string]int {
	want := map[string]int{}
	for i := range c.Regions {
		if e.wants(&c.Regions[i]) {
			want[c.Regions[i].Name] = i
		}
	}
	return want
}

// prune ends the regions that are not wanted, or not as they are.
func (e *exporter) prune(c *config.Config) error {
	want := e.wanted(c)
	var gone []string
	e.mu.RLock()
	for name, have := range e.list {
		i, ok := want[name]
		if !ok || !have.cfg.Same(c.Regions[i]) || !have.cfg.SameAllow(c.Regions[i]) {
			gone = append(gone, name)
		}
	}
	e.mu.RUnlock()
	var errs []error
	for _, name := range gone {
		errs = append(errs, e.remove(name))
	}
	return errors.Join(errs...)
}

// fill adds the regions that are wanted and not there.
func (e *exporter) fill(c *config.Config) error {
	var errs []error
	for name, i := range e.wanted(c) {
		e.mu.RLock()
		there := e.list[name] != nil
		e.mu.RUnlock()
		if there {
			continue
		}
		if err := e.add(&c.Regions[i]); err != nil {
			errs = append(errs, fmt.Errorf("%s: region %s on device %s: %w", c.Where(fmt.Sprintf("region.%d", i)), name, e.d.addr(), err))
		}
	}
	return errors.Join(errs...)
}

// remove ends a region. Clients that use it after that lose their connection:
// their right has ended.
func (e *exporter) remove(name string) error {
	if err := e.ln.Unexport(name); err != nil {
		return err
	}
	e.mu.Lock()
	delete(e.list, name)
	e.mu.Unlock()
	e.records.log.Info("region ended", "region", name, "device", e.d.addr())
	return nil
}

func (e *exporter) add(c *config.Region) error {
	x := rdma.Region{Size: int(c.Size), Writable: c.Access == config.ReadWrite, Allow: allowed(c), AllowNames: c.Names, Secured: c.TLS}
	if c.File != "" {
		f, err := openFile(c)
		if err != nil {
			return err
		}
		defer f.Close()
		x.File = f
	} else {
		var err error
		if x.Memory, err = e.memory(c); err != nil {
			return err
		}
		x.Size = 0
	}
	mr, err := e.export(c.Name, x)
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.list[c.Name] = &region{cfg: *c, device: e.d.addr(), size: mr.Len()}
	e.mu.Unlock()
	e.records.log.Info("region exported", "region", c.Name, "device", e.d.addr(), "bytes", mr.Len(), "access", c.Access)
	return nil
}

// export exports a region, so that clients can have what they write brought to
// the disk where its file is on one.
func (e *exporter) export(name string, x rdma.Region) (*verbs.MR, error) {
	if x.File != nil && x.Writable {
		x.Persistent = true
		if mr, err := e.ln.Export(name, x); err == nil {
			return mr, nil
		}
		x.Persistent = false // a file system in memory
	}
	return e.ln.Export(name, x)
}

// allowed returns the prefixes for rdma.Region, where nil allows all clients.
func allowed(c *config.Region) []netip.Prefix {
	switch {
	case c.Any:
		return nil
	case len(c.Allow)+len(c.Names) == 0:
		return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
	return c.Allow
}

// openFile opens the file of a region, or makes it.
func openFile(c *config.Region) (*os.File, error) {
	if c.Access != config.ReadWrite {
		f, err := regular.Open(c.File)
		if err != nil {
			return nil, err
		}
		return checkFile(f, c)
	}
	f, err := regular.OpenFile(c.File, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) && c.Size > 0 {
		if f, err = regular.OpenFile(c.File, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			if err = f.Truncate(c.Size); err != nil {
				f.Close()
				os.Remove(c.File)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return checkFile(f, c)
}

func checkFile(f *os.File, c *config.Region) (*os.File, error) {
	st, err := f.Stat()
	switch {
	case err != nil:
	case st.Size() == 0:
		err = fmt.Errorf("%s is empty", c.File)
	case st.Size() < c.Size:
		err = fmt.Errorf("%s has %d bytes, less than the region (size = %d)", c.File, st.Size(), c.Size)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// stop takes no more clients, and disconnects those that are there. A peer that
// does not answer is not waited for beyond ctx.
func (e *exporter) stop(ctx context.Context) error {
	e.cancel()
	done := make(chan error, 1)
	go func() {
		err := e.ln.Close()
		e.wg.Wait()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("clients of regions of device %s did not answer the disconnect", e.d.addr())
	}
}
