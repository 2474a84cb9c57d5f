package rstream

import (
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/rdma/rdmanet"
)

// DefaultPort is the port of the connection manager that rstream listens on.
const DefaultPort = 7471

// MaxSize is the largest transfer.
const MaxSize = 64 << 20

// Config says what is run. The zero value runs both series.
type Config struct {
	Size       int  // bytes of a transfer; 0: those of the series
	Count      int  // transfers each way in an iteration; 0: that of the series
	Iterations int  // 0: that of the series
	All        bool // the series have all sizes, from 64 bytes to 6 MiB
	Buffer     int  // bytes of the buffers; 0: 512 KiB
	Verify     bool // both sides send a pattern and check it

	IdleTimeout time.Duration // nothing moves for so long; 0: no limit
	Clients     int           // that Serve serves; 0: without end

	OnListen func()                       // of Serve: clients can connect
	OnResult func(from string, r Result)  // of each test, at once; of Serve from several goroutines
	OnFailed func(from string, why error) // of Serve: a client came to nothing

	fewer int // tests: divides the number of transfers of the series
}

// Test is one test.
type Test struct {
	Name       string // as rstream prints it
	Size       int    // bytes of a transfer
	Count      int    // transfers each way in an iteration
	Iterations int
}

// Result is what a test has measured.
type Result struct {
	Test
	Elapsed time.Duration
}

// Bytes returns how many bytes went, both ways together.
func (r Result) Bytes() uint64 { return 2 * uint64(r.Size) * uint64(r.Count) * uint64(r.Iterations) }

// Gbps returns the bandwidth in Gb/s.
func (r Result) Gbps() float64 { return float64(r.Bytes()*8) / float64(max(r.Elapsed, 1)) }

// TransferTime returns how long one transfer took on average.
func (r Result) TransferTime() time.Duration {
	return r.Elapsed / time.Duration(2*r.Count*r.Iterations)
}

// Check returns nil if the configuration can be run.
func (c Config) Check() error {
	for _, v := range []struct {
		name      string
		got, most int
	}{{"size", c.Size, MaxSize}, {"count", c.Count, 1 << 30}, {"iterations", c.Iterations, 1 << 30}, {"buffer size", c.Buffer, 512 << 20}} {
		if v.got < 0 || v.got > v.most {
			return interop.BadConfig("the %s is %d; 1 to %d are possible", v.name, v.got, v.most)
		}
	}
	if c.All && c.Size != 0 {
		return interop.BadConfig("all sizes, and a size of %d bytes: choose one", c.Size)
	}
	return nil
}

// custom reports whether there is one test of the user's.
func (c *Config) custom() bool { return c.Size != 0 || c.Count != 0 || c.Iterations != 0 }

// series are the tests of each connection.
func (c *Config) series() [][]Test {
	if c.custom() {
		t := Test{Name: "custom", Size: c.Size, Count: c.Count, Iterations: c.Iterations}
		for _, v := range []struct {
			v      *int
			normal int
		}{{&t.Size, 1000}, {&t.Count, 1000}, {&t.Iterations, 1000}} {
			if *v.v == 0 {
				*v.v = v.normal
			}
		}
		return [][]Test{{t}}
	}
	var latency, bandwidth []Test
	for _, size := range sizes(c.All) {
		n := transfers(size) / max(c.fewer, 1)
		latency = append(latency, Test{Short(uint64(size)) + "_lat", size, 1, n})
		bandwidth = append(bandwidth, Test{Short(uint64(size)) + "_bw", size, n, 1})
	}
	return [][]Test{latency, bandwidth}
}

// options are those of the connection of a series.
func (c *Config) options(series int) rdmanet.Options {
	n := c.Buffer
	if n == 0 && series == 1 {
		n = 512 << 10
	}
	return rdmanet.Options{RecvBuffer: n, SendBuffer: n}
}

func sizes(all bool) []int {
	if !all {
		return []int{64, 4 << 10, 64 << 10, 1 << 20}
	}
	list := []int{64}
	for n := 128; n <= 4<<20; n *= 2 {
		list = append(list, n, n+n/2)
	}
	return list
}

// transfers returns how many transfers of a size there are.
func transfers(size int) int {
	switch {
	case size >= 1<<20:
		return 100
	case size >= 1<<16:
		return 1000
	case size >= 1<<10:
		return 10000
	}
	return 100000
}

// Short writes a number of bytes as rstream does: "4k", "4.8k", "97k".
func Short(n uint64) string {
	for _, u := range []struct {
		unit uint64
		name string
	}{{1 << 30, "g"}, {1 << 20, "m"}, {1 << 10, "k"}} {
		whole, tenths := n/u.unit, n%u.unit*10/u.unit
		switch {
		case whole == 0:
		case whole >= 10 || tenths == 0:
			return fmt.Sprintf("%d%s", whole, u.name)
		default:
			return fmt.Sprintf("%d.%d%s", whole, tenths, u.name)
		}
	}
	return fmt.Sprint(n)
}
