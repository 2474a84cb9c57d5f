package uverbs

import (
	"math"
	"os"
	"testing"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/uverbs/abi"
	"github.com/gosoftroce/rocev2/uverbs/quota"
)

// What a query of the device says can be had: objects of all kinds together,
// and no more of them.
func TestMaximaTogether(t *testing.T) {
	t.Parallel()
	d, _ := hosts(t)
	user := quota.New("a user", nil, quota.Limits{quota.MWs: 30, quota.SRQs: 20, quota.CQEntries: 4000})
	a := open(t, d, Quota{RingBytes: 1 << 20, Objects: hca.Quota{PDs: 10, MRs: 50, AHs: 40}, Account: user})
	a.getContext()
	most := ask[abi.QueryDeviceResp](a, abi.QueryDevice, abi.QueryDeviceReq{})
	pages := uint32(1 << 20 / os.Getpagesize())
	if most.MaxQp != pages/4 || most.MaxCq != pages/4 || most.MaxSrq != min(20, pages/4) || most.MaxPd != 10 || most.MaxMr != 50 || most.MaxMw != 30 || most.MaxAh != 40 {
		t.Errorf("it says %+v", most)
	}
	a.pd = ask[abi.AllocPDResp](a, abi.AllocPD, abi.AllocPDReq{}).PdHandle
	cq := ask[abi.CreateCQResp](a, abi.CreateCQ, abi.CreateCQReq{Cqe: 1, CompChannel: -1}).CqHandle
	for _, c := range []struct {
		what string
		n    uint32 // less those that are there
		cmd  []byte
	}{
		{"domains", most.MaxPd - 1, plain(abi.AllocPD, 4, abi.AllocPDReq{})},
		{"completion queues", most.MaxCq - 1, plain(abi.CreateCQ, 24, abi.CreateCQReq{Cqe: 1, CompChannel: -1})},
		{"queue pairs", most.MaxQp, plain(abi.CreateQP, 64, abi.CreateQPReq{PdHandle: a.pd, SendCqHandle: cq, RecvCqHandle: cq,
			MaxSendWr: 1, MaxRecvWr: 1, MaxSendSge: 1, MaxRecvSge: 1, QpType: uint8(ib.RC)})},
		{"shared receive queues", most.MaxSrq, plain(abi.CreateSRQ, 40, abi.CreateSRQReq{PdHandle: a.pd, MaxWr: 1, MaxSge: 1})},
		{"regions", most.MaxMr, plain(abi.RegMR, 12, abi.RegMRReq{Start: a.addr(0), Length: 64, HcaVa: a.addr(0), PdHandle: a.pd})},
		{"windows", most.MaxMw, plain(abi.AllocMW, 8, abi.AllocMWReq{PdHandle: a.pd, MwType: 2})},
		{"address handles", most.MaxAh, plain(abi.CreateAH, 12, abi.CreateAHReq{PdHandle: a.pd, Attr: *attrOfDest(ptr(a.dest()))})},
	} {
		for i := range c.n {
			if r := a.c.Command(c.cmd); r.Errno != 0 {
				t.Fatalf("%s: %d of %d: %v", c.what, i, c.n, r.Errno)
			}
		}
		if r := a.c.Command(c.cmd); r.Errno != abi.ENOMEM {
			t.Errorf("%s: one more: %v", c.what, r.Errno)
		}
	}
}

// The longest queues of a queue pair, with the longest lists, can be had
// together with the longest completion queue; and so can the longest shared
// receive queue.
func TestLongestTogether(t *testing.T) {
	t.Parallel()
	d, _ := hosts(t)
	for _, q := range []Quota{{RingBytes: 8 << 20}, {RingBytes: 8 << 20, CQEntries: 1000}} {
		a := open(t, d, q)
		a.getContext()
		a.pd = ask[abi.AllocPDResp](a, abi.AllocPD, abi.AllocPDReq{}).PdHandle
		most := ask[abi.QueryDeviceResp](a, abi.QueryDevice, abi.QueryDeviceReq{})
		cq := ask[abi.CreateCQResp](a, abi.CreateCQ, abi.CreateCQReq{Cqe: most.MaxCqe, CompChannel: -1})
		srq := abi.CreateSRQReq{PdHandle: a.pd, MaxWr: most.MaxSrqWr, MaxSge: most.MaxSrqSge}
		handle := ask[abi.CreateSRQResp](a, abi.CreateSRQ, srq).SrqHandle
		ask[abi.DestroySRQResp](a, abi.DestroySRQ, abi.DestroySRQReq{SrqHandle: handle})
		req := abi.CreateQPReq{PdHandle: a.pd, SendCqHandle: cq.CqHandle, RecvCqHandle: cq.CqHandle, QpType: uint8(ib.RC),
			MaxSendWr: most.MaxQpWr, MaxRecvWr: most.MaxQpWr, MaxSendSge: most.MaxSge, MaxRecvSge: most.MaxSge}
		qp := ask[abi.CreateQPResp](a, abi.CreateQP, req)
		if cq.Cqe != most.MaxCqe || qp.MaxSendWr != most.MaxQpWr || qp.MaxRecvWr != most.MaxQpWr || most.MaxQpWr < 1023 {
			t.Errorf("%+v of %+v", qp, most)
		}
	}
}

// The defaults are those of hardware, and more is refused.
func TestMaxima(t *testing.T) {
	t.Parallel()
	m := maximaOf(Quota{}.withDefaults(), nil)
	if math.MaxInt == math.MaxInt64 && os.Getpagesize() == 4096 && (m.qps != 16384 || m.cqs != 16384 || m.srqs != 16384 || m.wr != 1<<16-1 || m.cqe != 1<<20-1) {
		t.Errorf("%+v", m)
	}
}
