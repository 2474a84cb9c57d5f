//go:build linux

package uverbs

import (
	"errors"
	"net/netip"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
)

// attachMcast has a queue pair receive what is sent to a group (IBTA 11.3.1).
func (p *queuePairs) attachMcast(_ *abi.Request, req *abi.McastReq) abi.Reply {
	return p.mcast(req, func(q *ownedQP, group netip.Addr) error {
		if q.groups[group] {
			return q.core.Attach(group) // which says what that is
		}
		if err := q.core.Attach(group); err != nil {
			return err
		}
		if q.groups == nil {
			q.groups = map[netip.Addr]bool{}
		}
		q.groups[group] = true
		return nil
	})
}

// detachMcast ends that.
func (p *queuePairs) detachMcast(_ *abi.Request, req *abi.McastReq) abi.Reply {
	return p.mcast(req, func(q *ownedQP, group netip.Addr) error {
		if err := q.core.Detach(group); err != nil {
			return err
		}
		delete(q.groups, group)
		return nil
	})
}

func (p *queuePairs) mcast(req *abi.McastReq, do func(*ownedQP, netip.Addr) error) abi.Reply {
	q := p.qps.get(req.QpHandle)
	if q == nil {
		return abi.Fail(abi.EINVAL)
	}
	err := do(q, groupOf(req.Gid))
	if errors.Is(err, hca.ErrNotAttached) {
		return abi.Fail(abi.EINVAL)
	}
	return abi.Fail(errnoOf(err))
}

// groupOf returns the group that a multicast GID names. That of an IPv4 group
// is mapped, or ends with the address (as the connection manager of Linux makes
// it).
func groupOf(gid [16]byte) netip.Addr {
	a := netip.AddrFrom16(gid).Unmap()
	if a.Is6() && gid[0] == 0xff && gid[10] == 0xff && gid[11] == 0xff && gid[12]&0xf0 == 0xe0 {
		return netip.AddrFrom4([4]byte(gid[12:]))
	}
	return a
}
