package perftest

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/lanes"
	"github.com/gosoftroce/rocev2/programs/interop/internal/work"
	"github.com/gosoftroce/rocev2/verbs"
)

// clientResources are what a server has for one client that does not say what
// it runs: memory and a completion queue, and a queue pair for each of the
// client's, made when the client tells of it.
type clientResources struct {
	dev  *verbs.Device
	cfg  *Config
	mtu  verbs.MTU
	grh  int // bytes that precede a message in a receive
	size int // bytes of a message at most
	room int // bytes of the region before this side's own messages

	pd *verbs.PD
	mr *verbs.MR
	w  *work.Waiter

	mu   sync.Mutex
	list []*answerLane // is replaced when it grows
}

// answerLane is a queue pair of the client, and the one that serves it.
type answerLane struct {
	*lanes.Set
	local, remote Address
	owed          int // receives used and not posted again
}

func newClientResources(dev *verbs.Device, c *Config, g greeting, size int) (*clientResources, error) {
	grh := lanes.GRH(c.Service)
	r := &clientResources{dev: dev, cfg: c, mtu: g.mtu, grh: grh, size: size, room: slotSize(grh+size, 2*g.cycle)}
	if err := r.open(); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *clientResources) open() (err error) {
	if r.pd, err = r.dev.AllocPD(); err != nil {
		return err
	}
	// What the client writes, then what this side sends. All queue pairs
	// share it: the content is never read.
	if r.mr, err = r.pd.AllocMemory(r.room+blockSize, allAccess); err != nil {
		return err
	}
	r.w, err = work.NewWaiter(r.dev, maxAnswered*(answerDepth+answerSends), work.Spin)
	return err
}

// allAccess lets a client do all that a test may.
const allAccess = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic

func (r *clientResources) close() {
	for _, l := range r.list {
		l.Close()
	}
	if r.w != nil {
		r.w.Close()
	}
	if r.mr != nil {
		r.mr.Close()
	}
	if r.pd != nil {
		r.pd.Close()
	}
}

// lanes returns the queue pairs that there are now.
func (r *clientResources) lanes() []*answerLane {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list
}

// received returns how many packets have come.
func (r *clientResources) received() (n uint64) {
	for _, l := range r.lanes() {
		n += l.Received()
	}
	return n
}

// find returns what serves a queue pair of the client, or nil.
func (r *clientResources) find(remote verbs.QPN) *answerLane {
	for _, l := range r.lanes() {
		if l.remote.QPN == remote {
			return l
		}
	}
	return nil
}

// serve returns the address of what serves a queue pair of the client. It makes
// one if there is none and check has no objection.
func (r *clientResources) serve(ctx context.Context, remote Address, check func() error) (Address, error) {
	if l := r.find(remote.QPN); l != nil {
		return l.local, nil
	}
	list := r.lanes()
	if len(list) >= maxAnswered {
		return Address{}, fmt.Errorf("the client has more than %d queue pairs (-q)", maxAnswered)
	}
	if err := check(); err != nil {
		return Address{}, err
	}
	set, err := lanes.New(lanes.Config{
		Dev: r.dev, PD: r.pd, Service: r.cfg.Service, Count: 1, CQ: r.w.CQ,
		MaxSendWR: answerSends, MaxRecvWR: answerDepth, Sends: true, Receives: true,
	})
	if err != nil {
		return Address{}, err
	}
	l := &answerLane{Set: set, remote: remote, owed: answerDepth}
	// Completions may come as soon as it is connected.
	r.mu.Lock()
	r.list = append(list[:len(list):len(list)], l)
	r.mu.Unlock()
	err = r.connect(ctx, len(list), l)
	return l.local, err
}

// connect makes a queue pair ready for all that a client may do.
func (r *clientResources) connect(ctx context.Context, i int, l *answerLane) error {
	out := r.dev.Query().MaxDestRdAtomic
	c := verbs.ConnectConfig{
		PathMTU: r.mtu, Access: allAccess, Timeout: r.cfg.Timeout,
		MaxRdAtomic: verbs.Set(uint8(1)), MaxDestRdAtomic: verbs.Set(uint8(out)),
	}
	if err := l.Init(c); err != nil {
		return err
	}
	end := l.Lanes[0].Recv.Endpoint()
	l.local = Address{
		OutReads: uint16(out), QPN: end.QPN, PSN: end.PSN, RKey: r.mr.RKey(), VAddr: r.mr.Addr(), GID: interop.GIDOf(end.Addr),
	}
	if err := r.repost(i, l); err != nil {
		return err
	}
	to := &l.remote
	return l.Connect(ctx, 0, lanes.Peer{Addr: to.GID.Addr(), SendQPN: to.QPN, SendPSN: to.PSN, RecvQPN: to.QPN, RecvPSN: to.PSN}, c)
}

// repost posts the receives that a queue pair is owed.
func (r *clientResources) repost(i int, l *answerLane) error {
	sg := []verbs.SGE{r.mr.Slice(0, r.grh+r.size)}
	var wrs [batch]verbs.RecvWR
	for l.owed > 0 {
		n := min(l.owed, batch)
		for j := range wrs[:n] {
			wrs[j] = verbs.RecvWR{ID: recvFlag | uint64(i), SGList: sg}
		}
		l.owed -= n
		if err := l.PostRecv(0, wrs[:n]...); err != nil {
			return err
		}
	}
	return nil
}

// post posts an operation to the client.
func (l *answerLane) post(wr verbs.SendWR) error {
	l.Address(0, &wr)
	return l.Lanes[0].Send.PostSend(wr)
}

// source returns the memory of this side's own messages.
func (r *clientResources) source() []byte { return r.mr.Bytes()[r.room:][:blockSize] }

// written returns how many bytes of the buffer lie before the end of what the
// client has written.
func (r *clientResources) written() int {
	for off := blockSize - 8; off >= 0; off -= 8 {
		v, err := r.mr.Load64(off)
		if err != nil {
			return 0
		}
		var b [8]byte
		binary.NativeEndian.PutUint64(b[:], v)
		for i := len(b) - 1; i >= 0; i-- {
			if b[i] != 0 {
				return off + i + 1
			}
		}
	}
	return 0
}
