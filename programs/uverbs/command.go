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

// onPlain is a plain command, which has a T.
func onPlain[T any](do func(*Client, *abi.Request, *T) abi.Reply, reply any) method {
	return method{func(c *Client, r *abi.Request) abi.Reply {
		v := new(T)
		if errno := r.Decode(v); errno != 0 {
			return abi.Fail(errno)
		}
		return do(c, r, v)
	}, reply}
}

// onExtended is an extended command of at least the given number of bytes.
func onExtended[T any](do func(*Client, *abi.Request, *T) abi.Reply, least int, reply any) method {
	return method{func(c *Client, r *abi.Request) abi.Reply {
		v := new(T)
		if errno := r.DecodeExtended(v, least); errno != 0 {
			return abi.Fail(errno)
		}
		return do(c, r, v)
	}, reply}
}

// The commands. Others are refused as the kernel refuses what a driver lacks.
var (
	methods = [abi.NumCommands]method{
		abi.GetContext:        onPlain(getContext, abi.GetContextResp{}),
		abi.QueryDevice:       onPlain(queryDevice, abi.QueryDeviceResp{}),
		abi.QueryPort:         onPlain(queryPort, abi.QueryPortResp{}),
		abi.AllocPD:           onPlain(allocPD, abi.AllocPDResp{}),
		abi.DeallocPD:         onPlain(deallocPD, nil),
		abi.CreateAH:          onPlain(createAH, abi.CreateAHResp{}),
		abi.DestroyAH:         onPlain(destroyAH, nil),
		abi.RegMR:             onPlain(regMR, abi.RegMRResp{}),
		abi.ReregMR:           onPlain(reregMR, abi.ReregMRResp{}),
		abi.DeregMR:           onPlain(deregMR, nil),
		abi.AllocMW:           onPlain(allocMW, abi.AllocMWResp{}),
		abi.DeallocMW:         onPlain(deallocMW, nil),
		abi.CreateCompChannel: onPlain(createCompChannel, abi.CreateCompChannelResp{}),
		abi.CreateCQ:          onPlain(createCQ, abi.CreateCQResp{}),
		abi.ResizeCQ:          onPlain(resizeCQ, abi.ResizeCQResp{}),
		abi.DestroyCQ:         onPlain(destroyCQ, abi.DestroyCQResp{}),
		abi.CreateQP:          onPlain(createQP, abi.CreateQPResp{}),
		abi.QueryQP:           onPlain(queryQP, abi.QueryQPResp{}),
		abi.ModifyQP:          onPlain(modifyQP, nil),
		abi.DestroyQP:         onPlain(destroyQP, abi.DestroyQPResp{}),
		abi.PostSend:          onPlain(postSend, abi.PostSendResp{}),
		abi.AttachMcast:       onPlain(attachMcast, nil),
		abi.DetachMcast:       onPlain(detachMcast, nil),
		abi.CreateSRQ:         onPlain(createSRQ, abi.CreateSRQResp{}),
		abi.ModifySRQ:         onPlain(modifySRQ, nil),
		abi.QuerySRQ:          onPlain(querySRQ, abi.QuerySRQResp{}),
		abi.DestroySRQ:        onPlain(destroySRQ, abi.DestroySRQResp{}),
		abi.CreateXSRQ:        onPlain(createXSRQ, abi.CreateSRQResp{}),
	}
	extendedMethods = [abi.NumCommands]method{
		abi.QueryDevice: onExtended(exQueryDevice, 8, abi.QueryDeviceResp{}),
		abi.CreateCQ:    onExtended(exCreateCQ, 28, abi.ExCreateCQResp{}),
		abi.CreateQP:    onExtended(exCreateQP, 56, abi.ExCreateQPResp{}),
		abi.ModifyQP:    onExtended(exModifyQP, 112, nil),
	}
)

// Command carries out what the program has written to the file.
func (c *Client) Command(b []byte) abi.Reply {
	c.PostLeft()
	if cq, solicited, ok := abi.ParseArm(b); ok { // most often
		return c.arm(cq, solicited, len(b))
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
	defer c.errands.run()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return abi.Fail(abi.EIO)
	}
	if c.async.Load() == nil && r.Command != abi.GetContext {
		return abi.Fail(abi.EINVAL)
	}
	out := m.do(c, &r)
	if out.Errno == 0 {
		out.N = len(b)
	}
	return out
}
