//go:build linux

package uverbs

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
)

// method is a command that is known.
type method struct {
	do    func(c *Client, r *abi.Request) abi.Reply
	reply any // the struct of the reply, which must have room; nil: none
}

// onPlain is a plain command to a part of the client, which has a T.
func onPlain[P, T any](part func(*Client) *P, do func(*P, *abi.Request, *T) abi.Reply, reply any) method {
	return method{func(c *Client, r *abi.Request) abi.Reply {
		v := new(T)
		if errno := r.Decode(v); errno != 0 {
			return abi.Fail(errno)
		}
		return do(part(c), r, v)
	}, reply}
}

// onExtended is an extended command of at least the given number of bytes.
func onExtended[P, T any](part func(*Client) *P, do func(*P, *abi.Request, *T) abi.Reply, least int, reply any) method {
	return method{func(c *Client, r *abi.Request) abi.Reply {
		v := new(T)
		if errno := r.DecodeExtended(v, least); errno != 0 {
			return abi.Fail(errno)
		}
		return do(part(c), r, v)
	}, reply}
}

// The parts of a client that commands are for.
func toEvents(c *Client) *events          { return &c.events }
func toQueries(c *Client) *queries        { return &c.queries }
func toProtection(c *Client) *protection  { return &c.protection }
func toHandles(c *Client) *addressHandles { return &c.handles }
func toCQs(c *Client) *compQueues         { return &c.cqs }
func toSRQs(c *Client) *sharedQueues      { return &c.srqs }
func toQPs(c *Client) *queuePairs         { return &c.qps }

// The commands. Others are refused as the kernel refuses what a driver lacks.
var (
	methods = [abi.NumCommands]method{
		abi.GetContext:        onPlain(toEvents, (*events).getContext, abi.GetContextResp{}),
		abi.QueryDevice:       onPlain(toQueries, (*queries).queryDevice, abi.QueryDeviceResp{}),
		abi.QueryPort:         onPlain(toQueries, (*queries).queryPort, abi.QueryPortResp{}),
		abi.AllocPD:           onPlain(toProtection, (*protection).allocPD, abi.AllocPDResp{}),
		abi.DeallocPD:         onPlain(toProtection, (*protection).deallocPD, nil),
		abi.CreateAH:          onPlain(toHandles, (*addressHandles).createAH, abi.CreateAHResp{}),
		abi.DestroyAH:         onPlain(toHandles, (*addressHandles).destroyAH, nil),
		abi.RegMR:             onPlain(toProtection, (*protection).regMR, abi.RegMRResp{}),
		abi.ReregMR:           onPlain(toProtection, (*protection).reregMR, abi.ReregMRResp{}),
		abi.DeregMR:           onPlain(toProtection, (*protection).deregMR, nil),
		abi.AllocMW:           onPlain(toProtection, (*protection).allocMW, abi.AllocMWResp{}),
		abi.DeallocMW:         onPlain(toProtection, (*protection).deallocMW, nil),
		abi.CreateCompChannel: onPlain(toEvents, (*events).createCompChannel, abi.CreateCompChannelResp{}),
		abi.CreateCQ:          onPlain(toCQs, (*compQueues).createCQ, abi.CreateCQResp{}),
		abi.ResizeCQ:          onPlain(toCQs, (*compQueues).resizeCQ, abi.ResizeCQResp{}),
		abi.DestroyCQ:         onPlain(toCQs, (*compQueues).destroyCQ, abi.DestroyCQResp{}),
		abi.CreateQP:          onPlain(toQPs, (*queuePairs).createQP, abi.CreateQPResp{}),
		abi.QueryQP:           onPlain(toQPs, (*queuePairs).queryQP, abi.QueryQPResp{}),
		abi.ModifyQP:          onPlain(toQPs, (*queuePairs).modifyQP, nil),
		abi.DestroyQP:         onPlain(toQPs, (*queuePairs).destroyQP, abi.DestroyQPResp{}),
		abi.PostSend:          onPlain(toQPs, (*queuePairs).postSend, abi.PostSendResp{}),
		abi.AttachMcast:       onPlain(toQPs, (*queuePairs).attachMcast, nil),
		abi.DetachMcast:       onPlain(toQPs, (*queuePairs).detachMcast, nil),
		abi.CreateSRQ:         onPlain(toSRQs, (*sharedQueues).createSRQ, abi.CreateSRQResp{}),
		abi.ModifySRQ:         onPlain(toSRQs, (*sharedQueues).modifySRQ, nil),
		abi.QuerySRQ:          onPlain(toSRQs, (*sharedQueues).querySRQ, abi.QuerySRQResp{}),
		abi.DestroySRQ:        onPlain(toSRQs, (*sharedQueues).destroySRQ, abi.DestroySRQResp{}),
		abi.CreateXSRQ:        onPlain(toSRQs, (*sharedQueues).createXSRQ, abi.CreateSRQResp{}),
	}
	extendedMethods = [abi.NumCommands]method{
		abi.QueryDevice: onExtended(toQueries, (*queries).exQueryDevice, 8, abi.QueryDeviceResp{}),
		abi.CreateCQ:    onExtended(toCQs, (*compQueues).exCreateCQ, 28, abi.ExCreateCQResp{}),
		abi.CreateQP:    onExtended(toQPs, (*queuePairs).exCreateQP, 56, abi.ExCreateQPResp{}),
		abi.ModifyQP:    onExtended(toQPs, (*queuePairs).exModifyQP, 112, nil),
	}
)

// Command carries out what the program has written to the file.
func (c *Client) Command(b []byte) abi.Reply {
	c.PostLeft()
	if cq, solicited, ok := abi.ParseArm(b); ok { // most often
		return c.cqs.arm(cq, solicited, len(b))
	}
	r, errno := abi.Parse(b)
	if errno != 0 {
		return abi.Fail(errno)
	}
	if r.Command >= abi.NumCommands {
		return abi.Fail(abi.EINVAL)
	}
	m := &methods[r.Command]
	if r.Extended {
		m = &extendedMethods[r.Command]
	}
	if m.do == nil {
		return abi.Fail(abi.EOPNOTSUPP)
	}
	if m.reply != nil && !r.Room(binary.Size(m.reply)) {
		return abi.Fail(abi.ENOSPC)
	}
	defer c.events.deferred.run()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return abi.Fail(abi.EIO)
	}
	if c.events.async.Load() == nil && r.Command != abi.GetContext {
		return abi.Fail(abi.EINVAL)
	}
	out := m.do(c, &r)
	if out.Errno == 0 {
		out.N = len(b)
	}
	return out
}
