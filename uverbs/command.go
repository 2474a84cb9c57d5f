//go:build linux

package uverbs

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/uverbs/abi"
)

// call is a command on its way: what it says, and whose memory it is about.
type call struct {
	abi.Request
	peer *Peer
}

// handler carries a command out.
type handler func(c *Client, r *call) abi.Reply

// method is a command that is known.
type method struct {
	do    handler
	reply any // the struct of the reply, which must have room; nil: none
}

// The commands. Others are refused as the kernel refuses what a driver lacks.
var (
	methods = [abi.NumCommands]method{
		abi.GetContext:        {getContext, abi.GetContextResp{}},
		abi.QueryDevice:       {queryDevice, abi.QueryDeviceResp{}},
		abi.QueryPort:         {queryPort, abi.QueryPortResp{}},
		abi.AllocPD:           {allocPD, abi.AllocPDResp{}},
		abi.DeallocPD:         {deallocPD, nil},
		abi.CreateAH:          {createAH, abi.CreateAHResp{}},
		abi.DestroyAH:         {destroyAH, nil},
		abi.RegMR:             {regMR, abi.RegMRResp{}},
		abi.ReregMR:           {reregMR, abi.ReregMRResp{}},
		abi.DeregMR:           {deregMR, nil},
		abi.AllocMW:           {allocMW, abi.AllocMWResp{}},
		abi.DeallocMW:         {deallocMW, nil},
		abi.CreateCompChannel: {createCompChannel, abi.CreateCompChannelResp{}},
		abi.CreateCQ:          {createCQ, abi.CreateCQResp{}},
		abi.ResizeCQ:          {resizeCQ, abi.ResizeCQResp{}},
		abi.DestroyCQ:         {destroyCQ, abi.DestroyCQResp{}},
		abi.ReqNotifyCQ:       {reqNotifyCQ, nil},
		abi.CreateQP:          {createQP, abi.CreateQPResp{}},
		abi.QueryQP:           {queryQP, abi.QueryQPResp{}},
		abi.ModifyQP:          {modifyQP, nil},
		abi.DestroyQP:         {destroyQP, abi.DestroyQPResp{}},
		abi.PostSend:          {postSend, abi.PostSendResp{}},
		abi.AttachMcast:       {attachMcast, nil},
		abi.DetachMcast:       {detachMcast, nil},
		abi.CreateSRQ:         {createSRQ, abi.CreateSRQResp{}},
		abi.ModifySRQ:         {modifySRQ, nil},
		abi.QuerySRQ:          {querySRQ, abi.QuerySRQResp{}},
		abi.DestroySRQ:        {destroySRQ, abi.DestroySRQResp{}},
		abi.CreateXSRQ:        {createXSRQ, abi.CreateSRQResp{}},
	}
	extendedMethods = [abi.NumCommands]method{
		abi.QueryDevice: {exQueryDevice, abi.QueryDeviceResp{}},
		abi.CreateCQ:    {exCreateCQ, abi.ExCreateCQResp{}},
		abi.CreateQP:    {exCreateQP, abi.ExCreateQPResp{}},
		abi.ModifyQP:    {exModifyQP, nil},
	}
)

// Command carries out what the program has written to the file.
func (c *Client) Command(b []byte) abi.Reply { return c.CommandOf(&c.peer, b) }

// CommandOf is Command of another program than the one that has opened the
// file, such as a child of it: what the command says of memory is about the
// memory of p.
func (c *Client) CommandOf(p *Peer, b []byte) abi.Reply {
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
	c.mu.Lock()
	defer c.mu.Unlock()
	c.home = c.homeOf(p)
	if c.closed {
		return abi.Fail(abi.EIO)
	}
	if c.async.Load() == nil && r.Command != abi.GetContext {
		return abi.Fail(abi.EINVAL)
	}
	out := m.do(c, &call{r, p})
	if out.Errno == 0 {
		out.N = len(b)
	}
	return out
}

// done is the reply to a command that has no other.
func done() abi.Reply { return abi.Reply{} }

// answer is the reply with structs of package abi.
func (r *call) answer(core, driver any) abi.Reply {
	return abi.Reply{Resp: r.Encode(core, driver)}
}

// decode decodes a plain command and has do carry it out.
func decode[T any](r *call, do func(*T) abi.Reply) abi.Reply {
	v := new(T)
	if errno := r.Decode(v); errno != 0 {
		return abi.Fail(errno)
	}
	return do(v)
}

// decodeExtended does so with an extended command of at least so many bytes.
func decodeExtended[T any](r *call, least int, do func(*T) abi.Reply) abi.Reply {
	v := new(T)
	if errno := r.DecodeExtended(v, least); errno != 0 {
		return abi.Fail(errno)
	}
	return do(v)
}
