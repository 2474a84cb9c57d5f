//go:build linux

package main

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// queue is a ring in memory that is shared with the driver (rxe_queue_buf): a
// header with the size of an entry and the mask of indices, the indices in
// cache lines of their own, and the entries.
type queue struct {
	mem   []byte
	shift uint32
	mask  uint32
}

const (
	producerAt = 128
	consumerAt = 256
	entriesAt  = 384
)

// mapQueue maps what a response describes: offset, size.
func mapQueue(fd int, info []byte) (*queue, error) {
	m, err := unix.Mmap(fd, int64(le.Uint64(info)), int(le.Uint32(info[8:])), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map a queue: %w", err)
	}
	return &queue{mem: m, shift: le.Uint32(m), mask: le.Uint32(m[4:])}, nil
}

func (q *queue) index(at int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&q.mem[at])) }

// entry returns the entry at an index.
func (q *queue) entry(i uint32) []byte {
	at := entriesAt + int(i&q.mask)<<q.shift
	return q.mem[at : at+1<<q.shift]
}

// Operations, with the numbers of ib_uverbs_wr_opcode.
const (
	opWrite       = 0
	opFlush       = 14
	opAtomicWrite = 15
)

const flagSignaled = 2

// Places in a send request of the driver (rxe_send_wqe).
const (
	wqeOpcode = 12
	wqeFlags  = 16
	wqeRemote = 24
	wqeKey    = 32 // of WRITE and ATOMIC WRITE
	flushLen  = 32
	flushKey  = 36
	flushType = 40
	wqeIOVA   = 152
	wqeSSN    = 176
	wqeLength = 184
	wqeResid  = 188
	wqeSGEs   = 196
	wqeData   = 208 // the first entry of the list, or 8 bytes to be written
	wqeLen    = 224
)

func (d *device) write(atomically bool, addr uint64, rkey uint32, data []byte) (uint32, error) {
	if len(data) > memSize/2 {
		return 0, fmt.Errorf("%d bytes are too many", len(data))
	}
	return d.post(func(w []byte) {
		le.PutUint64(w[wqeRemote:], addr)
		le.PutUint32(w[wqeKey:], rkey)
		le.PutUint64(w[wqeIOVA:], addr)
		le.PutUint32(w[wqeLength:], uint32(len(data)))
		le.PutUint32(w[wqeResid:], uint32(len(data)))
		if atomically {
			le.PutUint32(w[wqeOpcode:], opAtomicWrite)
			copy(w[wqeData:wqeLen], data)
			return
		}
		copy(d.mem[memSize/2:], data)
		le.PutUint32(w[wqeOpcode:], opWrite)
		le.PutUint32(w[wqeSGEs:], 1)
		le.PutUint64(w[wqeData:], d.memAddr()+memSize/2)
		le.PutUint32(w[wqeData+8:], uint32(len(data)))
		le.PutUint32(w[wqeData+12:], d.lkey)
	})
}

func (d *device) flush(addr uint64, rkey, n uint32, kind, level uint8) (uint32, error) {
	return d.post(func(w []byte) {
		le.PutUint32(w[wqeOpcode:], opFlush)
		le.PutUint64(w[wqeRemote:], addr)
		le.PutUint32(w[flushLen:], n)
		le.PutUint32(w[flushKey:], rkey)
		w[flushType], w[flushType+1] = kind, level
		le.PutUint64(w[wqeIOVA:], addr)
		le.PutUint32(w[wqeLength:], n)
		le.PutUint32(w[wqeResid:], n)
	})
}

// post posts a request, rings the doorbell, and returns the status of its
// completion.
func (d *device) post(fill func(w []byte)) (uint32, error) {
	producer := d.sq.index(producerAt)
	at := producer.Load()
	w := d.sq.entry(at)
	if len(w) < wqeLen {
		return 0, fmt.Errorf("send requests of %d bytes", len(w))
	}
	clear(w)
	d.nextID++
	le.PutUint64(w, d.nextID)
	le.PutUint32(w[wqeFlags:], flagSignaled)
	le.PutUint32(w[wqeSSN:], d.sent)
	fill(w)
	d.sent++
	producer.Store((at + 1) & d.sq.mask)
	body := make([]byte, 16)
	le.PutUint32(body, d.qp)
	le.PutUint32(body[12:], 128) // size of a request in the command, of which there is none
	if err := d.call("doorbell", cmdPostSend, body, make([]byte, 4)); err != nil {
		return 0, err
	}
	return d.poll()
}

// patience is how long a completion may take. A peer that is silent ends the
// kernel's retries before.
const patience = 30 * time.Second

// poll waits for the next completion (ib_uverbs_wc).
func (d *device) poll() (status uint32, err error) {
	consumer, producer := d.cq.index(consumerAt), d.cq.index(producerAt)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		at := consumer.Load()
		if at&d.cq.mask == producer.Load()&d.cq.mask {
			continue
		}
		e := d.cq.entry(at)
		id := le.Uint64(e)
		status = le.Uint32(e[8:])
		consumer.Store((at + 1) & d.cq.mask)
		if id != d.nextID {
			return 0, fmt.Errorf("completion of request %d, not %d", id, d.nextID)
		}
		return status, nil
	}
	return 0, fmt.Errorf("no completion after %v", patience)
}
