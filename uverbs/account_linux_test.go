package uverbs

import (
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/uverbs/abi"
	"github.com/gosoftroce/rocev2/uverbs/quota"
)

// payers are two open files of one user, who may have one object of each kind.
func payers(t *testing.T, most quota.Limits) (a, b *app, user *quota.Account) {
	d, _ := hosts(t)
	user = quota.New("user 7", nil, most)
	q := smallQuota
	q.Account = user
	a, b = open(t, d, q), open(t, d, q)
	a.getContext()
	b.getContext()
	return a, b, user
}

// What a user has in one open file he cannot have in another one.
func TestQuotaOfAUser(t *testing.T) {
	t.Parallel()
	a, b, user := payers(t, quota.Limits{quota.QPs: 1, quota.CQs: 2, quota.CQEntries: 100, quota.Channels: 1, quota.PDs: 2, quota.MRs: 1,
		quota.MWs: 1, quota.AHs: 1, quota.SRQs: 1, quota.RingBytes: 64 << 10})
	a.pd = ask[abi.AllocPDResp](a, abi.AllocPD, abi.AllocPDReq{}).PdHandle
	b.pd = ask[abi.AllocPDResp](b, abi.AllocPD, abi.AllocPDReq{}).PdHandle
	refused(b, abi.ENOMEM, abi.AllocPD, abi.AllocPDReq{})

	b.mr = b.register(0)
	addr := a.addr(0)
	refused(a, abi.ENOMEM, abi.RegMR, abi.RegMRReq{Start: addr, HcaVa: addr, Length: 8, PdHandle: a.pd})
	tell(b, abi.DeregMR, abi.DeregMRReq{MrHandle: b.mr.MrHandle})
	a.mr = a.register(0)

	ask[abi.AllocMWResp](a, abi.AllocMW, abi.AllocMWReq{PdHandle: a.pd, MwType: 1})
	refused(b, abi.ENOMEM, abi.AllocMW, abi.AllocMWReq{PdHandle: b.pd, MwType: 1})
	ah := abi.CreateAHReq{PdHandle: a.pd, Attr: *attrOfDest(new(abi.QPDest))}
	ah.Attr.IsGlobal, ah.Attr.PortNum, ah.Attr.Grh.Dgid = 1, 1, a.dest().Dgid
	write(a, plain(abi.CreateAH, 8, ah))
	ah.PdHandle = b.pd
	refused(b, abi.ENOMEM, abi.CreateAH, ah)

	cq := a.newCQ(63) // and a channel
	refused(b, abi.EMFILE, abi.CreateCompChannel, abi.CreateCompChannelReq{})
	refused(b, abi.ENOMEM, abi.CreateCQ, abi.CreateCQReq{CompChannel: -1, Cqe: 63})
	other := ask[abi.CreateCQResp](b, abi.CreateCQ, abi.CreateCQReq{CompChannel: -1, Cqe: 31})
	refused(b, abi.ENOMEM, abi.ResizeCQ, abi.ResizeCQReq{CqHandle: other.CqHandle, Cqe: 63})
	refused(a, abi.ENOMEM, abi.CreateCQ, abi.CreateCQReq{CompChannel: -1, Cqe: 1})

	qp := abi.CreateQPReq{PdHandle: b.pd, SendCqHandle: other.CqHandle, RecvCqHandle: other.CqHandle, QpType: uint8(ib.RC), MaxSendWr: 10}
	big := qp
	big.MaxSendWr = 1000
	refused(b, abi.ENOMEM, abi.CreateQP, big)
	a.newQP(ib.RC, cq, nil)
	refused(b, abi.ENOMEM, abi.CreateQP, qp)
	a.newSRQ(15, 0)
	refused(b, abi.ENOMEM, abi.CreateSRQ, abi.CreateSRQReq{PdHandle: b.pd, MaxWr: 1})

	a.must(a.c.Close())
	if n := user.Have(quota.RingBytes); user.Have(quota.QPs) != 0 || user.Have(quota.CQEntries) != int64(other.Cqe) || n != 4096 {
		t.Errorf("the file that is closed still has something: %d bytes", n)
	}
	ask[abi.CreateQPResp](b, abi.CreateQP, qp)
	ask[abi.CreateSRQResp](b, abi.CreateSRQ, abi.CreateSRQReq{PdHandle: b.pd, MaxWr: 1})
	b.must(b.c.Close())
	if !user.Empty() {
		t.Error("the user has something, and no open file")
	}
}

// What is destroyed does not count any more, and what fails never does.
func TestQuotaComesBack(t *testing.T) {
	t.Parallel()
	a, _, user := payers(t, quota.Limits{quota.Attachments: 2})
	a.pd = ask[abi.AllocPDResp](a, abi.AllocPD, abi.AllocPDReq{}).PdHandle
	cq := a.newCQ(15)
	before := user.Have(quota.RingBytes)
	for range 3 {
		ask[abi.ResizeCQResp](a, abi.ResizeCQ, abi.ResizeCQReq{CqHandle: cq.handle, Cqe: 63})
		refused(a, abi.ENOMEM, abi.ResizeCQ, abi.ResizeCQReq{CqHandle: cq.handle, Cqe: uint32(longest.cqe)})
		ask[abi.ResizeCQResp](a, abi.ResizeCQ, abi.ResizeCQReq{CqHandle: cq.handle, Cqe: 15})
		qp := a.newQP(ib.UD, cq, nil)
		groups := [3]abi.McastReq{}
		for i := range groups {
			groups[i] = abi.McastReq{QpHandle: qp.QpHandle, Gid: netip.AddrFrom4([4]byte{239, 1, 1, byte(i)}).As16()}
		}
		tell(a, abi.AttachMcast, groups[0])
		tell(a, abi.AttachMcast, groups[0])
		tell(a, abi.AttachMcast, groups[1])
		refused(a, abi.ENOMEM, abi.AttachMcast, groups[2])
		tell(a, abi.DetachMcast, groups[0])
		refused(a, abi.EINVAL, abi.DetachMcast, groups[0])
		refused(a, abi.EINVAL, abi.AttachMcast, abi.McastReq{QpHandle: qp.QpHandle})
		tell(a, abi.AttachMcast, groups[2])
		ask[abi.DestroyQPResp](a, abi.DestroyQP, abi.DestroyQPReq{QpHandle: qp.QpHandle})
	}
	want := quota.Limits{quota.QPs: 0, quota.CQs: 1, quota.CQEntries: 15, quota.Channels: 1, quota.PDs: 1, quota.RingBytes: before}
	for k, want := range want {
		if n := user.Have(quota.Kind(k)); n != want {
			t.Errorf("%d %v, want %d", n, quota.Kind(k), want)
		}
	}
}

// Address handles that a queue pair makes by itself count, and go with it.
func TestQuotaOfVectors(t *testing.T) {
	t.Parallel()
	a, _, user := payers(t, quota.Limits{quota.AHs: 10})
	a.pd = ask[abi.AllocPDResp](a, abi.AllocPD, abi.AllocPDReq{}).PdHandle
	cq := a.newCQ(15)
	for range 3 {
		qp := a.newQP(ib.UD, cq, nil)
		s := &a.c.qps.get(qp.QpHandle).queues.send
		for i := range 20 {
			h := s.handleFor(ib.AddressVector{DGID: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), HopLimit: 1})
			if (h != nil) != (i < 10) {
				t.Errorf("handle %d: %v", i, h != nil)
			}
		}
		ask[abi.DestroyQPResp](a, abi.DestroyQP, abi.DestroyQPReq{QpHandle: qp.QpHandle})
		if n := user.Have(quota.AHs); n != 0 {
			t.Errorf("%d address handles are left of the queue pair", n)
		}
	}
}

// The Q_Keys of management are for programs that may send raw packets.
func TestPrivilegedQKey(t *testing.T) {
	t.Parallel()
	d, _ := hosts(t)
	a := start(t, d)
	qp := a.newQP(ib.UD, a.newCQ(15), nil)
	toInit := abi.ModifyQPReq{QpHandle: qp.QpHandle, AttrMask: uint32(ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort | ib.AttrQKey),
		QpState: uint8(ib.StateInit), PortNum: 1, Qkey: 0x80010000}
	command := plain(abi.ModifyQP, 0, toInit)
	may := false
	p := &Peer{Raw: func() bool { return may }}
	if r := a.c.CommandOf(p, command); r.Errno != abi.EPERM {
		t.Errorf("errno %d; want %d", r.Errno, abi.EPERM)
	}
	if may = true; a.c.CommandOf(p, command).Errno != 0 {
		t.Error("who may is refused")
	}
}
