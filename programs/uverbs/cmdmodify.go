//go:build linux

package uverbs

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/rocev2"
)

// plainAttrs are the attributes that a plain command may name: those up to the
// number of the peer's queue pair.
const plainAttrs = 1<<21 - 1

// modifyQP changes a queue pair (IBTA 11.2.5.2).
func (p *queuePairs) modifyQP(r *abi.Request, req *abi.ModifyQPReq) abi.Reply {
	if req.AttrMask&^plainAttrs != 0 {
		return abi.Fail(abi.EOPNOTSUPP)
	}
	return abi.Fail(p.modify(req, 0))
}

// exModifyQP changes a queue pair, and perhaps its rate.
func (p *queuePairs) exModifyQP(r *abi.Request, req *abi.ExModifyQPReq) abi.Reply {
	if req.Base.AttrMask&^(plainAttrs|uint32(ib.AttrRateLimit)) != 0 {
		return abi.Fail(abi.EOPNOTSUPP)
	}
	if errno := p.modify(&req.Base, req.RateLimit); errno != 0 {
		return abi.Fail(errno)
	}
	return r.Answer(abi.ExModifyQPResp{ResponseLength: 8}, nil)
}

// modify changes a queue pair.
func (p *queuePairs) modify(req *abi.ModifyQPReq, rate uint32) abi.Errno {
	q := p.qps.get(req.QpHandle)
	mask := ib.AttrMask(req.AttrMask)
	switch {
	case q == nil,
		mask&ib.AttrPort != 0 && req.PortNum != portNumber,
		mask&ib.AttrAltPath != 0 && req.AltPortNum != portNumber:
		return abi.EINVAL
	}
	a, errno := attrOf(req)
	if errno != 0 {
		return errno
	}
	a.RateLimit = rate
	if mask&ib.AttrAV != 0 && q.typ == ib.RC && p.dev.Native != nil {
		a.AV.Native = p.dev.Native(a.AV.DGID)
	}
	if err := q.queues.Modify(a, mask); err != nil {
		return errnoOf(err)
	}
	if mask&ib.AttrState != 0 {
		q.ready.Store(sends(a.State))
	}
	return 0
}

// attrOf returns the attributes that a command names.
func attrOf(req *abi.ModifyQPReq) (*ib.Attr, abi.Errno) {
	a := &ib.Attr{
		State: ib.State(req.QpState), CurState: ib.State(req.CurQpState),
		EnableSQDNotify: req.Sqd != 0,
		Access:          ib.Access(req.QpAccessFlags),
		PKeyIndex:       req.PkeyIndex,
		Port:            req.PortNum,
		QKey:            req.Qkey,
		PathMTU:         rocev2.MTU(req.PathMtu),
		Timeout:         req.Timeout & 31,
		RetryCount:      req.RetryCnt,
		RNRRetry:        req.RnrRetry,
		RQPSN:           rocev2.PSN(req.RqPsn) & rocev2.PSNMask,
		SQPSN:           rocev2.PSN(req.SqPsn) & rocev2.PSNMask,
		MaxRdAtomic:     req.MaxRdAtomic,
		MaxDestRdAtomic: req.MaxDestRdAtomic,
		MinRNRTimer:     req.MinRnrTimer & 31,
		DestQPN:         rocev2.QPN(req.DestQpNum),
		PathMigState:    ib.MigState(req.PathMigState),
	}
	if ib.AttrMask(req.AttrMask)&ib.AttrAV != 0 {
		var errno abi.Errno
		if a.AV, errno = vectorOf(attrOfDest(&req.Dest)); errno != 0 {
			return nil, errno
		}
	}
	return a, 0
}

// attrOfDest returns the address of a queue pair's peer as that of an address
// handle.
func attrOfDest(d *abi.QPDest) *abi.AHAttr {
	return &abi.AHAttr{
		Grh:  abi.GlobalRoute{Dgid: d.Dgid, FlowLabel: d.FlowLabel, SgidIndex: d.SgidIndex, HopLimit: d.HopLimit, TrafficClass: d.TrafficClass},
		Dlid: d.Dlid, Sl: d.Sl, SrcPathBits: d.SrcPathBits, StaticRate: d.StaticRate, IsGlobal: d.IsGlobal, PortNum: d.PortNum,
	}
}

// destOf returns an address vector as a command returns it.
func destOf(av *ib.AddressVector) abi.QPDest {
	if !av.DGID.IsValid() {
		return abi.QPDest{}
	}
	return abi.QPDest{
		Dgid: av.DGID.As16(), FlowLabel: av.FlowLabel, SgidIndex: av.SGIDIndex, HopLimit: av.HopLimit, TrafficClass: av.TrafficClass,
		Sl: av.SL, StaticRate: av.StaticRate, IsGlobal: 1, PortNum: portNumber,
	}
}

// queryQP returns the attributes of a queue pair (IBTA 11.2.5.3).
func (p *queuePairs) queryQP(r *abi.Request, req *abi.QueryQPReq) abi.Reply {
	q := p.qps.get(req.QpHandle)
	if q == nil {
		return abi.Fail(abi.EINVAL)
	}
	a := q.core.Attr()
	out := abi.QueryQPResp{
		Dest:      destOf(&a.AV),
		MaxSendWr: q.cap.MaxSendWr, MaxRecvWr: q.cap.MaxRecvWr, MaxSendSge: q.cap.MaxSendSge, MaxRecvSge: q.cap.MaxRecvSge,
		MaxInlineData: q.cap.MaxInlineData,
		QPValues: abi.QPValues{
			Qkey:          a.QKey,
			RqPsn:         uint32(a.RQPSN),
			SqPsn:         uint32(a.SQPSN),
			DestQpNum:     uint32(a.DestQPN),
			QpAccessFlags: uint32(a.Access),
			PkeyIndex:     a.PKeyIndex,
			QpState:       uint8(a.State), CurQpState: uint8(a.State),
			PathMtu:         uint8(a.PathMTU),
			PathMigState:    uint8(a.PathMigState),
			MaxRdAtomic:     a.MaxRdAtomic,
			MaxDestRdAtomic: a.MaxDestRdAtomic,
			MinRnrTimer:     a.MinRNRTimer,
			PortNum:         a.Port,
			Timeout:         a.Timeout,
			RetryCnt:        a.RetryCount,
			RnrRetry:        a.RNRRetry,
		},
		SqSigAll: q.cap.SqSigAll,
	}
	return r.Answer(out, nil)
}
