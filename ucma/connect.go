//go:build linux

package ucma

import (
	"errors"
	"syscall"

	"github.com/gosoftroce/rocev2/cm"
	"github.com/gosoftroce/rocev2/ucma/abi"
	uabi "github.com/gosoftroce/rocev2/uverbs/abi"
	"github.com/gosoftroce/rocev2/verbs"
)

// errnoOf returns the number for an error of package cm.
func errnoOf(err error) uabi.Errno {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, syscall.EADDRINUSE):
		return uabi.EADDRINUSE
	case errors.Is(err, cm.ErrClosed), errors.Is(err, verbs.ErrClosed):
		return uabi.ENODEV
	}
	return uabi.EINVAL
}

// connParam returns what a program asks for. A queue pair of UD has the usual
// Q_Key.
func connParam(p *abi.ConnParam) *cm.ConnParam {
	return &cm.ConnParam{PrivateData: p.Private, ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth,
		FlowControl: p.FlowControl, RetryCount: p.RetryCount, RNRRetryCount: p.RNRRetryCount, SRQ: p.SRQ, QPN: verbs.QPN(p.QPN)}
}

// sayECE has the ID say of this side what the program does, and nothing if it
// does not.
func sayECE(id *cm.ID, e abi.ECE) {
	option := cm.WithoutECE()
	if e != (abi.ECE{}) {
		option = cm.WithLocalECE(cm.ECE{VendorID: e.Vendor & 0xffffff, Options: e.Options})
	}
	_ = id.SetOption(option) // neither fails
}

func (c *Client) connect(cmd *abi.Command) ([]byte, uabi.Errno) {
	in, errno := abi.ParseConnect(cmd.Number, cmd.In)
	if errno != 0 || !in.Param.Valid {
		return nil, uabi.EINVAL
	}
	i, errno := c.usable(in.ID)
	if errno != 0 {
		return nil, errno
	}
	if !i.datagrams && !c.peer.owns(i, verbs.QPN(in.Param.QPN)) {
		return nil, uabi.EINVAL
	}
	sayECE(i.id, in.ECE)
	err := i.id.Connect(connParam(&in.Param))
	if err == nil {
		i.engaged = true
	}
	return nil, errnoOf(err)
}

// owns reports whether the program may name a queue pair; 0 is none.
func (p *Peer) owns(i *ident, n verbs.QPN) bool {
	return n == 0 || p.Owns == nil || p.Owns(i.id.Device(), n)
}

// maxBacklog is how many requests wait for the program at most, as on Linux.
const maxBacklog = 1024

func (c *Client) listen(cmd *abi.Command) ([]byte, uabi.Errno) {
	in, errno := abi.ParseID(cmd.Number, cmd.In)
	if errno != 0 {
		return nil, errno
	}
	i, errno := c.usable(in.ID)
	if errno != 0 {
		return nil, errno
	}
	if !i.id.LocalAddr().IsValid() && !i.wild {
		if errno := c.bindTo(i, unspecified); errno != 0 {
			return nil, errno
		}
	}
	i.backlog = maxBacklog
	if n := int32(in.Value); n > 0 && n < maxBacklog {
		i.backlog = int(n)
	}
	return nil, errnoOf(i.id.Listen(maxBacklog))
}

// accept accepts a request; or, of the side that has asked, it says that this
// side is ready.
func (c *Client) accept(cmd *abi.Command) ([]byte, uabi.Errno) {
	in, errno := abi.ParseConnect(cmd.Number, cmd.In)
	if errno != 0 {
		return nil, errno
	}
	i, errno := c.usable(in.ID)
	if errno != 0 {
		return nil, errno
	}
	if !in.Param.Valid {
		return nil, errnoOf(i.id.Establish())
	}
	if !c.peer.owns(i, verbs.QPN(in.Param.QPN)) {
		return nil, uabi.EINVAL
	}
	if in.ECE != (abi.ECE{}) {
		sayECE(i.id, in.ECE)
	}
	before := i.uid
	i.uid = in.UID
	err := i.id.Accept(connParam(&in.Param))
	if err != nil {
		i.uid = before
	}
	return nil, errnoOf(err)
}

// Reasons of REJECT.
const (
	rejectConsumer = 28
	rejectVendor   = 35
)

func (c *Client) reject(cmd *abi.Command) ([]byte, uabi.Errno) {
	in, errno := abi.ParseReject(cmd.In)
	if errno != 0 {
		return nil, errno
	}
	i, errno := c.usable(in.ID)
	if errno != 0 {
		return nil, errno
	}
	switch in.Reason {
	case 0, rejectConsumer:
		return nil, errnoOf(i.id.Reject(in.Private))
	case rejectVendor:
		return nil, errnoOf(i.id.RejectECE(in.Private))
	}
	return nil, uabi.EINVAL
}

// disconnect is no error where there is nothing to disconnect any more.
func (c *Client) disconnect(cmd *abi.Command) ([]byte, uabi.Errno) {
	in, errno := abi.ParseID(cmd.Number, cmd.In)
	if errno != 0 {
		return nil, errno
	}
	i, errno := c.usable(in.ID)
	if errno != 0 {
		return nil, errno
	}
	if !i.engaged || i.datagrams {
		return nil, uabi.EINVAL
	}
	_ = i.id.Disconnect()
	return nil, 0
}

// commEstablished is IBV_EVENT_COMM_EST.
const commEstablished = 4

func (c *Client) notify(cmd *abi.Command) ([]byte, uabi.Errno) {
	in, errno := abi.ParseID(cmd.Number, cmd.In)
	if errno != 0 {
		return nil, errno
	}
	i, errno := c.usable(in.ID)
	if errno != 0 {
		return nil, errno
	}
	if in.Value != commEstablished {
		return nil, uabi.EINVAL
	}
	return nil, errnoOf(i.id.Notify(verbs.EventCommEstablished))
}

func (c *Client) initQPAttr(cmd *abi.Command) ([]byte, uabi.Errno) {
	if cmd.Out < abi.QPAttrLen {
		return nil, uabi.ENOSPC
	}
	in, errno := abi.ParseID(cmd.Number, cmd.In)
	if errno != 0 {
		return nil, errno
	}
	i, errno := c.usable(in.ID)
	if errno != 0 {
		return nil, errno
	}
	if verbs.State(in.Value) > verbs.StateErr || in.Value > 0xff || i.id.Device() == nil || i.wild {
		return nil, uabi.EINVAL
	}
	state := verbs.State(in.Value)
	if i.datagrams || !i.engaged {
		a := abi.QPAttr{State: in.Value, Port: 1, QKey: cm.QKey, Mask: uint32(verbs.AttrState | verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrQKey)}
		if !i.datagrams {
			a.QKey, a.Mask = 0, uint32(verbs.AttrState|verbs.AttrPKeyIndex|verbs.AttrPort|verbs.AttrAccess)
		}
		return a.Encode(), 0
	}
	attr, mask, err := i.id.InitQPAttr(state)
	if err != nil {
		return nil, errnoOf(err)
	}
	if state == verbs.StateRTR {
		mask &^= verbs.AttrAccess // they come with INIT
		attr.MinRNRTimer = longestRNR
		i.know(i.id.LocalAddr().Addr(), attr)
	}
	return encodeAttr(attr, mask), 0
}

// longestRNR is the code of 655 ms, which Linux gives to programs as the least
// RNR NAK timer (IBTA 9.7.5.2.8): a peer with few retries outlasts a program
// that posts its receives late.
const longestRNR = 0

func encodeAttr(a *verbs.Attr, mask verbs.AttrMask) []byte {
	out := abi.QPAttr{Mask: uint32(mask), State: uint32(a.State), PathMTU: uint32(a.PathMTU), QKey: a.QKey,
		RQPSN: uint32(a.RQPSN), SQPSN: uint32(a.SQPSN), DestQPN: uint32(a.DestQPN), Access: uint32(a.Access),
		PKeyIndex: a.PKeyIndex, MaxRdAtomic: a.MaxRdAtomic, MaxDestRdAtomic: a.MaxDestRdAtomic,
		MinRNRTimer: a.MinRNRTimer, Port: a.Port, Timeout: a.Timeout, RetryCount: a.RetryCount, RNRRetry: a.RNRRetry}
	if mask&verbs.AttrAV != 0 {
		av := &a.AV
		out.AH = abi.AH{DGID: av.DGID, FlowLabel: av.FlowLabel, SGIDIndex: av.SGIDIndex, HopLimit: av.HopLimit,
			TrafficClass: av.TrafficClass, SL: av.SL, StaticRate: av.StaticRate}
	}
	return out.Encode()
}
