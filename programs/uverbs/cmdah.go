//go:build linux

package uverbs

import (
	"errors"
	"net/netip"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
)

// handle is an address handle. Its number in send requests is one more than
// that in commands, for there 0 is none.
type handle struct {
	core hca.AH
	pd   *domain
}

// vectorOf returns an address vector. A RoCE port has one GID, and needs the
// global route.
func vectorOf(a *abi.AHAttr) (ib.AddressVector, abi.Errno) {
	if a.IsGlobal == 0 || a.PortNum != portNumber || a.Grh.SgidIndex != 0 {
		return ib.AddressVector{}, abi.EINVAL
	}
	av := ib.AddressVector{
		DGID:         netip.AddrFrom16(a.Grh.Dgid).Unmap(),
		TrafficClass: a.Grh.TrafficClass,
		HopLimit:     a.Grh.HopLimit,
		FlowLabel:    a.Grh.FlowLabel & (1<<20 - 1),
		SL:           a.Sl & 15,
		StaticRate:   a.StaticRate,
	}
	if av.FlowLabel != 0 {
		av.SrcPort = hca.AutoSourcePort
	}
	return av, 0
}

// createAH makes an address handle (IBTA 11.2.2.1).
func createAH(c *Client, r *abi.Request, req *abi.CreateAHReq) abi.Reply {
	pd := c.domains.get(req.PdHandle)
	if pd == nil {
		return abi.Fail(abi.EINVAL)
	}
	if own := c.dev.OwnHandle; own != nil && req.Attr.IsGlobal == 0 && own() {
		req.Attr.IsGlobal, req.Attr.Grh.Dgid = 1, c.dev.Dev.Addr().As16()
	}
	av, errno := vectorOf(&req.Attr)
	if errno != 0 {
		return abi.Fail(errno)
	}
	h, err := c.handles.add(func(uint32) (*handle, error) {
		ah := &handle{pd: pd}
		return ah, pd.core.MakeAH(&ah.core, av)
	})
	if err != nil {
		return abi.Fail(errnoOf(err))
	}
	pd.users++
	return r.Answer(abi.CreateAHResp{AhHandle: h}, abi.CreateAHDriverResp{AhNum: h + 1})
}

// addressHandle returns the handle with a number in send requests.
func (c *Client) addressHandle(number uint32) *ib.AddressHandle {
	if ah := c.handles.get(number - 1); ah != nil {
		return ah.core.Core()
	}
	return nil
}

// destroyAH destroys an address handle (IBTA 11.2.2.4).
func destroyAH(c *Client, r *abi.Request, req *abi.DestroyAHReq) abi.Reply {
	ah := c.handles.get(req.AhHandle)
	if ah == nil {
		return abi.Fail(abi.ENOENT)
	}
	c.handles.release(req.AhHandle)
	ah.core.Close()
	ah.pd.users--
	return abi.Reply{}
}

// attachMcast has a queue pair receive what is sent to a group (IBTA 11.3.1).
func attachMcast(c *Client, _ *abi.Request, req *abi.McastReq) abi.Reply {
	return c.mcast(req, func(q *ownedQP, group netip.Addr) error {
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
func detachMcast(c *Client, _ *abi.Request, req *abi.McastReq) abi.Reply {
	return c.mcast(req, func(q *ownedQP, group netip.Addr) error {
		if err := q.core.Detach(group); err != nil {
			return err
		}
		delete(q.groups, group)
		return nil
	})
}

func (c *Client) mcast(req *abi.McastReq, do func(*ownedQP, netip.Addr) error) abi.Reply {
	q := c.qps.get(req.QpHandle)
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
