package verbs

import (
	"errors"
	"fmt"
)

// errNoRequest is what is wrong with a batch in which a modifier came first.
var errNoRequest = errors.New("a modifier (ID, Signaled, Inline …) comes before the first request")

// Batch gathers send requests and posts them at once, with one doorbell, as the
// extended work request interface of rdma-core does (ibv_wr_start to
// ibv_wr_complete). A method such as Send or Write adds a request; ID, Signaled
// and the others change the request that was added last:
//
//	b := qp.NewBatch()
//	for … {
//		b.Write(peer.At(0), mr.Slice(0, 4096))
//		b.SendImm(7).Inline(head).ID(42).Signaled()
//		if err := b.Post(); err != nil {
//			return err
//		}
//	}
//
// Post takes all requests or none. A batch can be used again and again; then it
// does not allocate. It belongs to one goroutine.
type Batch struct {
	qp   *QP
	wrs  []SendWR
	sges []SGE
	data []byte
	err  error
}

// NewBatch returns an empty batch for the queue pair.
func (q *QP) NewBatch() *Batch { return &Batch{qp: q} }

// Len returns how many requests the batch has.
func (b *Batch) Len() int { return len(b.wrs) }

// Add adds any request, with the memory that its slices name: SGList and Inline
// must stay as they are until Post.
func (b *Batch) Add(wr SendWR) *Batch {
	b.wrs = append(b.wrs, wr)
	return b
}

// add adds a request with a copy of its scatter/gather list. Where the copies
// of others have no room any more, those keep what they have.
func (b *Batch) add(wr SendWR, sg []SGE) *Batch {
	if len(sg) > 0 {
		at := len(b.sges)
		b.sges = append(b.sges, sg...)
		wr.SGList = b.sges[at:len(b.sges):len(b.sges)]
	}
	b.wrs = append(b.wrs, wr)
	return b
}

// Send adds a SEND of the memory that sg names.
func (b *Batch) Send(sg ...SGE) *Batch { return b.add(SendWR{Opcode: OpSend}, sg) }

// SendImm adds a SEND with immediate data.
func (b *Batch) SendImm(imm uint32, sg ...SGE) *Batch {
	return b.add(SendWR{Opcode: OpSendImm, Imm: imm}, sg)
}

// SendInv adds a SEND that ends a key of the peer.
func (b *Batch) SendInv(key Key, sg ...SGE) *Batch {
	return b.add(SendWR{Opcode: OpSendInv, InvalidateKey: key}, sg)
}

// Write adds a WRITE to the peer's memory.
func (b *Batch) Write(to RemoteAddr, sg ...SGE) *Batch {
	return b.add(SendWR{Opcode: OpWrite, Remote: to}, sg)
}

// WriteImm adds a WRITE with immediate data.
func (b *Batch) WriteImm(imm uint32, to RemoteAddr, sg ...SGE) *Batch {
	return b.add(SendWR{Opcode: OpWriteImm, Remote: to, Imm: imm}, sg)
}

// Read adds a READ of the peer's memory into the memory that sg names.
func (b *Batch) Read(from RemoteAddr, sg ...SGE) *Batch {
	return b.add(SendWR{Opcode: OpRead, Remote: from}, sg)
}

// CompareSwap adds an atomic: the 8 bytes at the peer become swap if they are
// compare. What they were goes to result.
func (b *Batch) CompareSwap(at RemoteAddr, compare, swap uint64, result SGE) *Batch {
	return b.add(SendWR{Opcode: OpCompareSwap, Remote: at, CompareAdd: compare, Swap: swap}, []SGE{result})
}

// FetchAdd adds an atomic: add is added to the 8 bytes at the peer. What they
// were goes to result.
func (b *Batch) FetchAdd(at RemoteAddr, add uint64, result SGE) *Batch {
	return b.add(SendWR{Opcode: OpFetchAdd, Remote: at, CompareAdd: add}, []SGE{result})
}

// AtomicWrite adds an ATOMIC WRITE: the 8 aligned bytes at the peer become
// value, as it lies in memory.
func (b *Batch) AtomicWrite(at RemoteAddr, value [8]byte) *Batch {
	return b.Add(SendWR{Opcode: OpAtomicWrite, Remote: at}).Inline(value[:])
}

// Flush adds a FLUSH of n bytes at the peer, which waits for what types says.
// For another level than FlushRange use Add.
func (b *Batch) Flush(at RemoteAddr, n uint32, types FlushType) *Batch {
	return b.Add(SendWR{Opcode: OpFlush, Remote: at, Length: n, FlushType: types, FlushLevel: FlushRange})
}

// LocalInv adds a request that ends a key of this side. (Those that bind a
// window or register memory come from MW.BindTo and FastMR.Register, for Add.)
func (b *Batch) LocalInv(key Key) *Batch {
	return b.Add(SendWR{Opcode: OpLocalInv, InvalidateKey: key})
}

// last returns the request that was added last.
func (b *Batch) last() *SendWR {
	if len(b.wrs) == 0 {
		b.err = errNoRequest
		b.wrs = append(b.wrs, SendWR{}) // Post refuses it
	}
	return &b.wrs[len(b.wrs)-1]
}

// ID sets [SendWR.ID] of the last request.
func (b *Batch) ID(id uint64) *Batch { b.last().ID = id; return b }

// Signaled has the last request complete with an entry.
func (b *Batch) Signaled() *Batch { b.last().Signaled = true; return b }

// Solicited has the last request ask for an event at the peer.
func (b *Batch) Solicited() *Batch { b.last().Solicited = true; return b }

// Fence has the last request wait for the READs and atomics before it.
func (b *Batch) Fence() *Batch { b.last().Fence = true; return b }

// Inline gives the last request its data, which is copied, instead of a
// scatter/gather list.
func (b *Batch) Inline(data []byte) *Batch {
	wr := b.last()
	at := len(b.data)
	b.data = append(b.data, data...)
	wr.Inline, wr.SGList = b.data[at:len(b.data):len(b.data)], nil
	if wr.Inline == nil {
		wr.Inline = []byte{}
	}
	return b
}

// To says where the datagram of the last request goes (UD).
func (b *Batch) To(ah *AddressHandle, qpn QPN, qkey uint32) *Batch {
	wr := b.last()
	wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, qpn, qkey
	return b
}

// ToSRQ says which shared receive queue of the peer the last request is for
// (XRC).
func (b *Batch) ToSRQ(number uint32) *Batch { b.last().RemoteSRQN = number; return b }

// Post posts all requests in order and starts sending them, or none if one of
// them is refused: because it is wrong, or because the send queue has no room
// for all. The batch is empty then, in either case. The error is that of
// [QP.PostSend]; nothing was queued, whatever its Index. That of a batch which
// is longer than the send queue wraps ErrQueueFull and a *RangeError: waiting
// does not help.
func (b *Batch) Post() error {
	defer b.Abort()
	if b.err != nil {
		return fmt.Errorf("verbs: post a batch on QP %v: %w", b.qp.QPN(), b.err)
	}
	n, err := b.qp.core.PostSends(b.wrs)
	if most := int(b.qp.made.maxSendWR); errors.Is(err, ErrQueueFull) && len(b.wrs) > most {
		err = &batchTooLong{RangeError{What: "the number of requests in a batch", Got: len(b.wrs), Max: most}}
	}
	if err != nil && n < len(b.wrs) {
		return &PostError{Index: n, ID: b.wrs[n].ID, Err: err}
	}
	return err
}

// Abort empties the batch and posts nothing (ibv_wr_abort).
func (b *Batch) Abort() {
	clear(b.wrs) // address handles and lists of the program are not kept
	b.wrs, b.sges, b.data, b.err = b.wrs[:0], b.sges[:0], b.data[:0], nil
}

// batchTooLong says that a batch can never be posted.
type batchTooLong struct{ RangeError }

func (e *batchTooLong) Error() string {
	return e.RangeError.Error() + ", the size of the send queue (MaxSendWR): post it in parts"
}

func (e *batchTooLong) Unwrap() []error { return []error{ErrQueueFull, &e.RangeError} }
