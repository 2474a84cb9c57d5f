//go:build unix

package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/rdma"
)

const (
	firstPort = 17471
	keepAlive = 2 * time.Second
)

// serve exports the journal and the counters, and echoes messages.
func serve(ctx context.Context, o options) error {
	dev, err := open(o)
	if err != nil {
		return err
	}
	defer dev.Close()
	go endWith(ctx, dev)
	lc := rdma.ListenConfig{Device: dev, KeepAlive: keepAlive}
	for name, size := range map[string]int{journal: o.conns * places * recordLen, counters: o.conns * counterLen} {
		f, err := mapped(filepath.Join(o.dir, name+strings.ReplaceAll(o.addr, ".", "-")+"-"+o.port), int64(size))
		if err != nil {
			return err
		}
		lc.Export(name, rdma.Region{File: f, Size: size, Writable: true})
	}
	l, err := lc.Listen(ctx, net.JoinHostPort(o.addr, o.port))
	if err != nil {
		return err
	}
	go report(ctx, o, func(s *sample) { s.take(dev) })
	for {
		c, err := l.Accept(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go echo(ctx, c)
	}
}

// echo sends back what comes, until the connection ends.
func echo(ctx context.Context, c *rdma.Conn) {
	defer c.Close()
	for {
		m, err := c.RecvMsg(ctx)
		if err != nil {
			return
		}
		err = c.Send(ctx, m.Bytes())
		m.Release()
		if err != nil {
			return
		}
	}
}

// mapped opens a file of a size. What it has stays.
func mapped(name string, size int64) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return f, f.Truncate(size)
}

// report prints a sample now and then.
func report(ctx context.Context, o options, take func(*sample)) {
	tick := time.NewTicker(o.report)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			var s sample
			take(&s)
			s.print()
		}
	}
}
