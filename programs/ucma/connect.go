//go:build linux

package ucma

import (
	"encoding/binary"
	"errors"
	"syscall"

	"github.com/gosoftroce/rocev2/programs/ucma/abi"
	uabi "github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/rdma/cm"
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
	return &cm.ConnParam{PrivateData: p.Private.Bytes(), ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth,
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

func (c *Client) connect(in *abi.ConnectCmd) ([]byte, uabi.Errno) {
	if !in.Param.Valid {
		return nil, uabi.EINVAL
	}
	i, errno := c.ids.usable(in.ID)
	if errno != 0 {
		return nil, errno
	}
	sayECE(i.id, in.ECE)
	err := i.id.Connect(connParam(&in.Param))
	if err == nil {
		i.engaged = true
	}
	return nil, errnoOf(err)
}

// maxBacklog is how many requests wait for the program at most, as on Linux.
const maxBacklog = 1024

func (c *Client) listen(i *ident, value uint32) ([]byte, uabi.Errno) {
	if !i.id.LocalAddr().IsValid() && !i.wild {
		if errno := c.bindTo(i, unspecified); errno != 0 {
			return nil, errno
		}
	}
	i.backlog = maxBacklog
	if n := int32(value); n > 0 && n < maxBacklog {
		i.backlog = int(n)
	}
	return nil, errnoOf(i.id.Listen(maxBacklog))
}

// accept accepts a request; or, of the side that has asked, it says that this
// side is ready.
func (c *Client) accept(in *abi.ConnectCmd) ([]byte, uabi.Errno) {
	i, errno := c.ids.usable(in.ID)
	if errno != 0 {
		return nil, errno
	}
	if !in.Param.Valid {
		return nil, errnoOf(i.id.Establish())
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

func (c *Client) reject(in *abi.RejectCmd) ([]byte, uabi.Errno) {
	i, errno := c.ids.usable(in.ID)
	if errno != 0 {
		return nil, errno
	}
	switch in.Reason {
	case 0, rejectConsumer:
		return nil, errnoOf(i.id.Reject(in.Private[:in.Len]))
	case rejectVendor:
		return nil, errnoOf(i.id.RejectECE(in.Private[:in.Len]))
	}
	return nil, uabi.EINVAL
}

// disconnect is no error where there is nothing to disconnect any more.
func (c *Client) disconnect(i *ident, value uint32) ([]byte, uabi.Errno) {
	if !i.engaged || i.datagrams {
		return nil, uabi.EINVAL
	}
	_ = i.id.Disconnect()
	return nil, 0
}

// commEstablished is IBV_EVENT_COMM_EST.
const commEstablished = 4

func (c *Client) notify(i *ident, value uint32) ([]byte, uabi.Errno) {
	if value != commEstablished {
		return nil, uabi.EINVAL
	}
	return nil, errnoOf(i.id.Notify(verbs.EventCommEstablished))
}

func (c *Client) initQPAttr(i *ident, value uint32) ([]byte, uabi.Errno) {
	if verbs.State(value) > verbs.StateErr || value > 0xff || i.id.Device() == nil || i.wild {
		return nil, uabi.EINVAL
	}
	state := verbs.State(value)
	if i.datagrams || !i.engaged {
		mask := verbs.AttrState | verbs.AttrPKeyIndex | verbs.AttrPort
		if i.datagrams {
			return encodeAttr(&verbs.Attr{State: state, Port: 1, QKey: cm.QKey}, mask|verbs.AttrQKey), 0
		}
		return encodeAttr(&verbs.Attr{State: state, Port: 1}, mask|verbs.AttrAccess), 0
	}
	attr, mask, err := i.id.InitQPAttr(state)
	if err != nil {
		return nil, errnoOf(err)
	}
	if state == verbs.StateRTR {
		mask &^= verbs.AttrAccess // they come with INIT
		attr.MinRNRTimer = longestRNR
		if attr.AV.Native { // which the program's MODIFY_QP cannot say
			cm.Met(i.id.Device(), attr.AV.DGID)
		}
	}
	return encodeAttr(attr, mask), 0
}

// longestRNR is the code of 655 ms, which Linux gives to programs as the least
// RNR NAK timer (IBTA 9.7.5.2.8): a peer with few retries outlasts a program
// that posts its receives late.
const longestRNR = 0

func encodeAttr(a *verbs.Attr, mask verbs.AttrMask) []byte {
	out := uabi.QPAttr{QpAttrMask: uint32(mask), QpState: uint32(a.State), PathMtu: uint32(a.PathMTU), Qkey: a.QKey,
		RqPsn: uint32(a.RQPSN), SqPsn: uint32(a.SQPSN), DestQpNum: uint32(a.DestQPN), QpAccessFlags: uint32(a.Access),
		PkeyIndex: a.PKeyIndex, MaxRdAtomic: a.MaxRdAtomic, MaxDestRdAtomic: a.MaxDestRdAtomic,
		MinRnrTimer: a.MinRNRTimer, PortNum: a.Port, Timeout: a.Timeout, RetryCnt: a.RetryCount, RnrRetry: a.RNRRetry}
	if mask&verbs.AttrAV != 0 {
		out.AhAttr = handle(&a.AV)
	}
	b, _ := binary.Append(nil, binary.LittleEndian, &out) // it is of fixed size
	return b
}

// handle returns an address as that of an address handle; without a GID it is
// zero.
func handle(av *verbs.AddressVector) (a uabi.AHAttr) {
	if !av.DGID.IsValid() {
		return a
	}
	a.Grh = uabi.GlobalRoute{Dgid: av.DGID.As16(), FlowLabel: av.FlowLabel, SgidIndex: av.SGIDIndex, HopLimit: av.HopLimit, TrafficClass: av.TrafficClass}
	a.Sl, a.StaticRate, a.IsGlobal, a.PortNum = av.SL, av.StaticRate, 1, 1
	return a
}
