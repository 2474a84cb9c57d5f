// Command hello writes a line into the memory of another process.
//
//	hello 127.0.0.2              # waits for it, on a local address
//	hello 127.0.0.1 127.0.0.2    # writes it, from another local address
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

const port = "7471" // TCP, on which the two meet

// card is what one side must know of the other.
type card struct {
	QP     verbs.Endpoint
	Memory verbs.RemoteMemory
}

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		log.Fatal("usage: hello LOCAL-ADDRESS [PEER-ADDRESS]")
	}
	peer := ""
	if len(os.Args) == 3 {
		peer = os.Args[2]
	}
	if err := hello(context.Background(), os.Args[1], peer); err != nil {
		log.Fatal(err)
	}
}

func hello(ctx context.Context, local, peer string) error {
	dev, err := verbs.Open(local)
	if err != nil {
		return err
	}
	defer dev.Close() // and everything made on it
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	mr, err := pd.RegisterMemory(make([]byte, 4096), verbs.LocalWrite|verbs.RemoteWrite)
	if err != nil {
		return err
	}
	cq, err := dev.CreateCQ(16)
	if err != nil {
		return err
	}
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
	if err != nil {
		return err
	}
	if err := qp.Init(); err != nil { // receives may be posted from here on
		return err
	}
	if err := qp.PostRecv(verbs.RecvWR{}); err != nil { // the line itself comes into mr
		return err
	}
	theirs, err := swap(local, peer, card{qp.Endpoint(), mr.Remote()})
	if err != nil {
		return err
	}
	if err := qp.Connect(ctx, theirs.QP); err != nil {
		return err
	}
	if peer != "" {
		if err := write(qp, mr, theirs.Memory, "hello from "+local); err != nil {
			return err
		}
	}
	var wc [1]verbs.WC
	if _, err := cq.Wait(ctx, wc[:]); err != nil {
		return err
	}
	if err := wc[0].Err(); err != nil {
		return err
	}
	if peer == "" {
		fmt.Printf("%s\n", mr.Bytes()[:wc[0].ByteLen])
	}
	return nil
}

// write has a line written into the peer's memory.
func write(qp *verbs.QP, mr *verbs.MR, to verbs.RemoteMemory, line string) error {
	n := copy(mr.Bytes(), line)
	return qp.PostSend(verbs.SendWR{
		Opcode: verbs.OpWriteImm, // a WRITE that the peer learns of
		SGList: []verbs.SGE{mr.Slice(0, n)}, Remote: to.At(0),
		Signaled: true,
	})
}

// swap exchanges cards over TCP.
func swap(local, peer string, mine card) (theirs card, err error) {
	var conn net.Conn
	if peer == "" {
		l, err := net.Listen("tcp", net.JoinHostPort(local, port))
		if err != nil {
			return theirs, err
		}
		defer l.Close()
		log.Printf("waiting on %v", l.Addr())
		if conn, err = l.Accept(); err != nil {
			return theirs, err
		}
	} else if conn, err = dial(net.JoinHostPort(peer, port)); err != nil {
		return theirs, err
	}
	defer conn.Close()
	if err = json.NewEncoder(conn).Encode(mine); err == nil {
		err = json.NewDecoder(conn).Decode(&theirs)
	}
	return theirs, err
}

// dial waits some seconds for a peer that has not started yet.
func dial(addr string) (conn net.Conn, err error) {
	for try := range 100 {
		if conn, err = net.Dial("tcp", addr); err == nil {
			break
		}
		if try == 0 {
			log.Printf("waiting for %v", addr)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return conn, err
}
