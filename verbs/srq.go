package verbs

import (
	"errors"
	"fmt"

	"github.com/gosoftroce/rocev2/hca"
)

// SRQConfig says what a shared receive queue is made for.
type SRQConfig struct {
	MaxWR  int // receives that it holds; 0 means 128
	MaxSGE int // entries of a receive's scatter/gather list; 0 means 4
	Limit  int // see SRQ.SetLimit; 0 means none

	// XRCD makes it a queue for XRC: requests to the XRCTargets of that
	// domain name it by its Number, and reach the memory of its protection
	// domain.
	XRCD *XRCD
	// CQ is where the receives complete. It is set with XRCD, and only
	// then.
	CQ *CQ

	UserData any // the program's own, see SRQ.UserData
}

// SRQAttr are the attributes of a shared receive queue.
type SRQAttr struct {
	MaxWR  int // receives that it holds
	MaxSGE int // entries of a receive's scatter/gather list; cannot be changed
	Limit  int // the armed limit, 0 if none is
	Posted int // receives that are in it now; cannot be changed
}

// SRQAttrMask selects attributes, with the numbers of ibv_srq_attr_mask.
type SRQAttrMask uint32

// Attributes that SRQ.Modify changes.
const (
	SRQMaxWR SRQAttrMask = 1
	SRQLimit SRQAttrMask = 2
)

// SRQ is a shared receive queue (IBTA 10.2.9): many queue pairs take their
// receives from it, in the order in which messages ask for them. Its methods
// may be called from any goroutine.
//
// The memory of the receives belongs to the domain of the queue, which may be
// another one than that of a queue pair. A receive completes to the RecvCQ of
// the queue pair that took it, and WC.QPN says which that was. A queue pair
// takes a receive with the first packet of a message. If the message comes to
// nothing, the receive completes with an error. If the queue pair is closed or
// reset in the middle of the message, the receive is gone without a completion,
// as those of a queue pair's own queue are.
//
// When the queue is empty, the peer is told to try again after
// ConnectConfig.MinRNRTimer. Where receives are short, a time of the order in
// which they are posted has all queue pairs go on together. With a much longer
// one they finish one after the other.
type SRQ struct {
	dev    *Device
	core   *hca.SRQ
	made   SRQConfig
	handle uint32
}

// CreateSRQ makes a shared receive queue. The error wraps ErrClosed,
// ErrOtherDevice or ErrNoResources, or a *RangeError for a size that the device
// does not offer.
func (pd *PD) CreateSRQ(c SRQConfig) (*SRQ, error) {
	if c.MaxWR == 0 {
		c.MaxWR = 128
	}
	if c.MaxSGE == 0 {
		c.MaxSGE = 4
	}
	config := hca.SRQConfig{MaxWR: c.MaxWR, MaxSGE: c.MaxSGE, Limit: c.Limit}
	if c.XRCD != nil {
		config.XRCD = c.XRCD.core
	}
	if c.CQ != nil {
		config.CQ = c.CQ.core
	}
	core, err := pd.core.CreateSRQ(config)
	if err != nil {
		return nil, fmt.Errorf("verbs: create a shared receive queue: %w", err)
	}
	s := &SRQ{dev: pd.dev, core: core, made: c, handle: pd.dev.srqs.Add(1)}
	core.SetUserData(s)
	return s, nil
}

// Device returns the device of the queue.
func (s *SRQ) Device() *Device { return s.dev }

// Number returns the number by which requests of XRC name the queue
// (SendWR.RemoteSRQN). It is random. It is 0 if the queue is not of XRC.
func (s *SRQ) Number() uint32 { return s.core.Number() }

// Handle returns the number of the queue on its device, for logs. Queues are
// numbered from 1 in the order in which they were made.
func (s *SRQ) Handle() uint32 { return s.handle }

// UserData returns [SRQConfig.UserData].
func (s *SRQ) UserData() any { return s.made.UserData }

// PostRecv posts buffers to the queue in order; each takes one message of any
// of its queue pairs. The requests are copied, so that their slices may be
// reused at once. The error is a *PostError, or wraps ErrClosed where no
// request is at fault.
func (s *SRQ) PostRecv(wrs ...RecvWR) error {
	n, err := s.core.PostRecv(wrs)
	if err != nil && n < len(wrs) && !errors.Is(err, ErrClosed) {
		return &PostError{Index: n, ID: wrs[n].ID, Err: err}
	}
	return err
}

// Query returns the current attributes. Those of a closed queue are 0.
func (s *SRQ) Query() SRQAttr {
	a := s.core.Attr()
	return SRQAttr(a)
}

// Modify changes the attributes that mask selects: SRQMaxWR resizes the queue,
// and SRQLimit arms its limit (IBTA 11.2.3.3). No receive that was posted is
// lost. On an error nothing has changed. It wraps a *RangeError, where the
// queue would hold less than is in it or than its limit, or ErrClosed.
func (s *SRQ) Modify(a SRQAttr, mask SRQAttrMask) error {
	if mask&^(SRQMaxWR|SRQLimit) != 0 {
		return fmt.Errorf("verbs: modify a shared receive queue: the mask %#x has more than SRQMaxWR and SRQLimit", uint32(mask))
	}
	var maxWR, limit *int
	if mask&SRQMaxWR != 0 {
		maxWR = &a.MaxWR
	}
	if mask&SRQLimit != 0 {
		limit = &a.Limit
	}
	if err := s.core.Modify(maxWR, limit); err != nil {
		return fmt.Errorf("verbs: modify a shared receive queue: %w", err)
	}
	return nil
}

// SetLimit has EventSRQLimit raised once: when a message has asked for a
// receive and fewer than n are left in the queue then. To be told again, call
// it again. 0 takes the wish back.
func (s *SRQ) SetLimit(n int) error { return s.Modify(SRQAttr{Limit: n}, SRQLimit) }

// Resize has the queue hold n receives from now on.
func (s *SRQ) Resize(n int) error { return s.Modify(SRQAttr{MaxWR: n}, SRQMaxWR) }

// Close destroys the queue with the receives that are in it, which complete no
// more. While queue pairs take from it, that is refused with ErrInUse: close
// them first. Closing the device closes them in the right order.
func (s *SRQ) Close() error { return closed("shared receive queue", s.core.Close()) }
