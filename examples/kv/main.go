// Command kv is a key-value store that its clients read and write one-sidedly:
// the server's program sleeps while they do.
//
//	kv serve 127.0.0.2:7471
//	kv put 127.0.0.2:7471 colour blue
//	kv get 127.0.0.2:7471 colour
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"log"
	"os"

	"github.com/gosoftroce/rocev2/rdma"
)

// A slot has a version, which is odd while a client writes, and then a key and
// a value, each after its length.
const (
	slotSize = 256
	slots    = 1 << 16
)

func main() {
	ctx, err := context.Background(), error(nil)
	d := &rdma.Dialer{WaitForServer: true}
	switch a := os.Args; {
	case len(a) == 3 && a[1] == "serve":
		err = serve(ctx, &rdma.ListenConfig{}, a[2])
	case len(a) == 5 && a[1] == "put":
		err = client(ctx, d, a[2], func(s *store) error { return s.put(a[3], a[4]) })
	case len(a) == 4 && a[1] == "get":
		err = client(ctx, d, a[2], func(s *store) error {
			value, err := s.get(a[3])
			if err == nil {
				fmt.Println(value)
			}
			return err
		})
	default:
		log.Fatal("usage: kv serve ADDR:PORT | put ADDR:PORT KEY VALUE | get ADDR:PORT KEY")
	}
	if err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, lc *rdma.ListenConfig, addr string) error {
	lc.Export("kv", rdma.Region{Size: slots * slotSize, Writable: true})
	l, err := lc.Listen(ctx, addr)
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Println("serving on", l.Addr())
	for {
		if _, err := l.Accept(ctx); err != nil {
			return err
		}
	}
}

func client(ctx context.Context, d *rdma.Dialer, addr string, do func(*store) error) error {
	log.Printf("connecting to %s, and waiting until it listens", addr)
	c, err := d.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	region, err := c.Region(ctx, "kv")
	if err != nil {
		return err
	}
	return do(&store{ctx, region})
}

type store struct {
	ctx    context.Context
	region *rdma.RemoteRegion
}

// find reads the slot that has the key, or the free one where it belongs: the
// version before and after is the same, so the text is of one writer.
func (s *store) find(key string) (off int64, version uint64, value string, err error) {
	h := fnv.New64a()
	h.Write([]byte(key))
	var slot [slotSize]byte
	for i := uint64(0); i < slots; {
		off = int64((h.Sum64() + i) % slots * slotSize)
		if err = s.region.Read(s.ctx, slot[:], off); err != nil {
			return
		}
		version = binary.NativeEndian.Uint64(slot[:])
		now, err := s.region.FetchAdd(s.ctx, off, 0)
		if err != nil {
			return 0, 0, "", err
		}
		if version%2 == 1 || now != version {
			continue // a client writes; if it dies, the slot stays locked
		}
		k, v := int(slot[8]), int(slot[9])
		if version == 0 || string(slot[10:10+k]) == key {
			return off, version, string(slot[10+k : 10+k+v]), nil
		}
		i++ // the slot of another key
	}
	return 0, 0, "", errors.New("no slot is free for the key")
}

func (s *store) get(key string) (string, error) {
	_, version, value, err := s.find(key)
	if err == nil && version == 0 {
		err = fmt.Errorf("no key %q", key)
	}
	return value, err
}

func (s *store) put(key, value string) error {
	if len(key)+len(value)+10 > slotSize {
		return fmt.Errorf("key and value have %d bytes, more than %d", len(key)+len(value), slotSize-10)
	}
	for {
		off, version, _, err := s.find(key)
		if err != nil {
			return err
		}
		old, err := s.region.CompareSwap(s.ctx, off, version, version+1)
		if err != nil {
			return err
		}
		if old != version {
			continue // another client was faster
		}
		text := append([]byte{byte(len(key)), byte(len(value))}, key+value...)
		if err := s.region.Write(s.ctx, text, off+8); err != nil {
			return err
		}
		_, err = s.region.FetchAdd(s.ctx, off, 1)
		return err
	}
}
