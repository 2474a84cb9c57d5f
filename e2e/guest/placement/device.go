//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's commands, by the numbers of ib_user_verbs.h.
const (
	cmdGetContext = 0
	cmdAllocPD    = 3
	cmdRegMR      = 9
	cmdCreateCQ   = 18
	cmdCreateQP   = 24
	cmdModifyQP   = 26
	cmdPostSend   = 28
)

// Rights of a region and of a queue pair (ib_uverbs_access_flags).
const (
	accessLocalWrite  = 1 << 0
	accessRemoteWrite = 1 << 1
	accessRemoteRead  = 1 << 2
	accessFlushGlobal = 1 << 8
)

// device is the guest's device with one of everything.
type device struct {
	fd     int
	gid    int
	qp     uint32 // handle
	qpn    uint32
	lkey   uint32
	rkey   uint32
	mem    []byte
	sq, cq *queue
	nextID uint64
	sent   uint32 // requests posted
}

const memSize = 1 << 16

func openDevice(name string, gid int) (*device, error) {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	d := &device{fd: fd, gid: gid}
	if err := d.call("get context", cmdGetContext, nil, make([]byte, 8)); err != nil {
		return nil, err
	}
	pd := make([]byte, 4)
	if err := d.call("allocate a protection domain", cmdAllocPD, nil, pd); err != nil {
		return nil, err
	}
	if err := d.register(le.Uint32(pd)); err != nil {
		return nil, err
	}
	cq, err := d.createCQ()
	if err != nil {
		return nil, err
	}
	return d, d.createQP(le.Uint32(pd), cq)
}

var le = binary.LittleEndian // the guest's machine is amd64

// scratch is where responses go: the kernel gets its address as a number, and
// it does not move.
var scratch [128]byte

// call writes a command: a header, where the response goes, and the rest.
func (d *device) call(what string, command uint32, body, response []byte) error {
	b := le.AppendUint32(nil, command)
	b = append(b, 0, 0, 0, 0)
	if response != nil {
		b = le.AppendUint64(b, uint64(uintptr(unsafe.Pointer(&scratch))))
	}
	b = append(b, body...)
	le.PutUint16(b[4:], uint16(len(b)/4))
	le.PutUint16(b[6:], uint16(len(response)/4))
	if _, err := unix.Write(d.fd, b); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	copy(response, scratch[:])
	return nil
}

// register registers memory with all the rights that the kernel grants. 6.1 has
// none for FLUSH.
func (d *device) register(pd uint32) (err error) {
	if d.mem, err = unix.Mmap(-1, 0, memSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON); err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	for _, access := range []uint32{accessFlushGlobal, 0} {
		body := le.AppendUint64(nil, d.memAddr())
		body = le.AppendUint64(body, memSize)
		body = le.AppendUint64(body, d.memAddr())
		body = le.AppendUint32(body, pd)
		body = le.AppendUint32(body, access|accessLocalWrite|accessRemoteWrite|accessRemoteRead)
		response := make([]byte, 12)
		if err = d.call("register memory", cmdRegMR, body, response); err == nil {
			d.lkey, d.rkey = le.Uint32(response[4:]), le.Uint32(response[8:])
			return nil
		}
	}
	return err
}

func (d *device) memAddr() uint64 { return uint64(uintptr(unsafe.Pointer(&d.mem[0]))) }

func (d *device) createCQ() (handle uint32, err error) {
	body := make([]byte, 24)
	le.PutUint32(body[8:], 64)          // entries
	le.PutUint32(body[16:], ^uint32(0)) // no channel
	response := make([]byte, 8+16)
	if err := d.call("create a completion queue", cmdCreateCQ, body, response); err != nil {
		return 0, err
	}
	d.cq, err = mapQueue(d.fd, response[8:])
	return le.Uint32(response), err
}

func (d *device) createQP(pd, cq uint32) (err error) {
	body := make([]byte, 8+4*9+4)
	for i, v := range []uint32{pd, cq, cq, 0, 16, 1, 1, 1, 64} { // domain, queues, SRQ, requests, entries, inline bytes
		le.PutUint32(body[8+4*i:], v)
	}
	body[45] = 2 // RC
	response := make([]byte, 32+2*16)
	if err := d.call("create a queue pair", cmdCreateQP, body, response); err != nil {
		return err
	}
	d.qp, d.qpn = le.Uint32(response), le.Uint32(response[4:])
	d.sq, err = mapQueue(d.fd, response[48:])
	return err
}

// States and attributes of modify (ib_qp_attr_mask).
const (
	maskInit = 0x1 | 0x8 | 0x10 | 0x20
	maskRTR  = 0x1 | 0x80 | 0x100 | 0x1000 | 0x8000 | 0x20000 | 0x100000
	maskRTS  = 0x1 | 0x200 | 0x400 | 0x800 | 0x2000 | 0x10000
)

// connect takes the queue pair to RTS. Its own first PSN is the peer's.
func (d *device) connect(qpn, psn uint32, to netip.Addr) error {
	body := make([]byte, 112)
	gid := to.As16()
	copy(body, gid[:])
	body[24], body[25], body[30], body[31] = byte(d.gid), 64, 1, 1 // GID index, hop limit, with a GRH, port
	for i, v := range []uint32{d.qp, 0, 0, psn, psn, qpn} {
		le.PutUint32(body[64+4*i:], v)
	}
	body[98] = 3 // path MTU 1024
	body[101], body[102], body[103] = 4, 4, 12
	body[104], body[105], body[106], body[107] = 1, 14, 7, 7 // port, timeout, retries
	access := uint32(accessRemoteWrite | accessRemoteRead | accessFlushGlobal)
	for state, mask := range []uint32{1: maskInit, 2: maskRTR, 3: maskRTS} {
		if state == 0 {
			continue
		}
		le.PutUint32(body[68:], mask)
		le.PutUint32(body[88:], access)
		body[96] = byte(state)
		err := d.call(fmt.Sprintf("modify to state %d", state), cmdModifyQP, body, nil)
		if err != nil && state == 1 { // a kernel without FLUSH
			access &^= accessFlushGlobal
			le.PutUint32(body[88:], access)
			err = d.call("modify to INIT", cmdModifyQP, body, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
