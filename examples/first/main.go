// Command first is the program that docs/guide.md explains: one side offers
// memory, the other writes into it, reads from it and counts in it.
//
//	first listen 127.0.0.2:7471
//	first dial 127.0.0.1 127.0.0.2:7471
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log"
	"net/netip"
	"os"

	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

func main() {
	ctx := context.Background()
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 2 && args[0] == "listen":
		err = listen(ctx, args[1])
	case len(args) == 3 && args[0] == "dial":
		err = dial(ctx, args[1], args[2])
	default:
		err = fmt.Errorf("usage: first listen ADDRESS:PORT, or first dial LOCAL-ADDRESS ADDRESS:PORT")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// side is what each of the two has.
type side struct {
	dev *verbs.Device
	mr  *verbs.MR
	cq  *verbs.CQ
	qp  *verbs.QP
}

// open makes a device on a local address, 4 KiB of memory, and a queue pair.
func open(local string, access verbs.Access) (s side, err error) {
	if s.dev, err = verbs.Open(local); err != nil {
		return s, err
	}
	pd, err := s.dev.AllocPD()
	if err != nil {
		return s, err
	}
	if s.mr, err = pd.RegisterMemory(make([]byte, 4096), access); err != nil {
		return s, err
	}
	if s.cq, err = s.dev.CreateCQ(16); err != nil {
		return s, err
	}
	s.qp, err = pd.CreateQP(verbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq})
	return s, err
}

// listen offers its memory to the first client that connects.
func listen(ctx context.Context, addr string) error {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return err
	}
	s, err := open(at.Addr().String(), verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic)
	if err != nil {
		return err
	}
	defer s.dev.Close() // and all that was made on it
	l, err := cm.Listen(s.dev, at, cm.ListenConfig{})
	if err != nil {
		return err
	}
	log.Printf("listening on %v", l.Addr())
	req, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	card, err := json.Marshal(s.mr.Remote()) // where the memory is, and its rkey
	if err != nil {
		return err
	}
	conn, err := req.Accept(ctx, s.qp, cm.AcceptConfig{PrivateData: card})
	if err != nil {
		return err
	}
	<-conn.Done() // this program has nothing else to do
	n, err := s.mr.Load64(0)
	fmt.Printf("the peer wrote %q and counted to %d\n", s.mr.Bytes()[64:69], n)
	return err
}

// dial uses the memory of the peer.
func dial(ctx context.Context, local, addr string) error {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return err
	}
	s, err := open(local, verbs.LocalWrite) // no peer may touch this memory
	if err != nil {
		return err
	}
	defer s.dev.Close()
	log.Printf("connecting to %v, and waiting until it listens", at)
	conn, err := cm.Dial(ctx, s.qp, at, cm.DialConfig{WaitForServer: true})
	if err != nil {
		return err
	}
	defer conn.Disconnect(ctx)
	var theirs verbs.RemoteMemory
	card := bytes.TrimRight(conn.PrivateData(), "\x00") // it comes filled up with zeros
	if err := json.Unmarshal(card, &theirs); err != nil {
		return err
	}

	// Three requests, in order: write a word, count, read the word back.
	copy(s.mr.Bytes(), "hello")
	err = s.qp.PostSend(
		verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, SGList: []verbs.SGE{s.mr.Slice(0, 5)}, Remote: theirs.At(64)},
		verbs.SendWR{ID: 2, Opcode: verbs.OpFetchAdd, CompareAdd: 1, SGList: []verbs.SGE{s.mr.Slice(8, 8)}, Remote: theirs.At(0)},
		verbs.SendWR{ID: 3, Opcode: verbs.OpRead, SGList: []verbs.SGE{s.mr.Slice(16, 5)}, Remote: theirs.At(64), Signaled: true},
	)
	if err != nil {
		return err
	}
	var wc [4]verbs.WC
	n, err := s.cq.Wait(ctx, wc[:]) // the third alone asked for a completion
	if err != nil {
		return err
	}
	for _, c := range wc[:n] {
		if err := c.Err(); err != nil {
			return err
		}
	}
	before := binary.NativeEndian.Uint64(s.mr.Bytes()[8:])
	fmt.Printf("the counter was %d, and the memory of the peer says %q\n", before, s.mr.Bytes()[16:21])
	return nil
}
