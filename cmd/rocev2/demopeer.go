package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/programs/interop/perftest"
	"github.com/gosoftroce/rocev2/verbs"
)

// The two processes of the demo talk over the second one's standard input and
// output, a JSON object a line each way.

// demoAsk is a question of the first process.
type demoAsk struct {
	Do       string          `json:"do"`
	Endpoint *verbs.Endpoint `json:"endpoint,omitempty"`
	Length   int             `json:"length,omitempty"`
	Seed     byte            `json:"seed,omitempty"`
	Word     uint64          `json:"word,omitempty"`
	Test     perftest.Test   `json:"test"`
	Size     int             `json:"size,omitempty"`
	Duration time.Duration   `json:"duration,omitempty"`
	Rounds   int             `json:"rounds,omitempty"`
}

// demoReply is the answer.
type demoReply struct {
	Error    string             `json:"error,omitempty"`
	Endpoint verbs.Endpoint     `json:"endpoint"`
	Memory   verbs.RemoteMemory `json:"memory"`
	Length   int                `json:"length,omitempty"`
	Imm      uint32             `json:"imm,omitempty"`
	WithImm  bool               `json:"with_imm,omitempty"`

	Invalidated verbs.Key `json:"invalidated,omitempty"`

	Sum  string `json:"sum,omitempty"`
	Word uint64 `json:"word,omitempty"`
	TCP  string `json:"tcp,omitempty"` // where the server of a rate waits

	Stats report `json:"stats"`
}

// demoChild is the second process as the first one has it.
type demoChild struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

func startDemoChild(ctx context.Context, f *demoFlags, class uint8, s streams) (*demoChild, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the program file of this process, to start it again: %w", err)
	}
	// It ends when its standard input does, that is, with this process.
	cmd := exec.CommandContext(ctx, self, "demo-peer", "--address", f.peer,
		"--tclass", strconv.Itoa(int(class)), "--shm="+strconv.FormatBool(f.inspect.shm))
	cmd.Env = append(os.Environ(), demoPeerEnv+"=1")
	cmd.Stderr = s.err
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the second process: %w", err)
	}
	return &demoChild{cmd: cmd, in: in, out: json.NewDecoder(out)}, nil
}

// demoPeerEnv tells the test binary to be the second process.
const demoPeerEnv = "ROCEV2_DEMO_PEER"

func (c *demoChild) pid() int { return c.cmd.Process.Pid }

// stop lets the process end, and ends it if it does not.
func (c *demoChild) stop() {
	c.in.Close()
	t := time.AfterFunc(2*time.Second, func() { c.cmd.Process.Kill() })
	defer t.Stop()
	c.cmd.Wait()
}

// ask puts a question and waits for the answer.
func (c *demoChild) ask(ctx context.Context, q demoAsk) (demoReply, error) {
	if err := json.NewEncoder(c.in).Encode(q); err != nil {
		return demoReply{}, fmt.Errorf("the second process is gone (%s): %w", q.Do, err)
	}
	return c.reply(ctx, q.Do)
}

// await waits for the end of what was asked for before.
func (c *demoChild) await(ctx context.Context, do string) error {
	_, err := c.reply(ctx, do)
	return err
}

func (c *demoChild) reply(ctx context.Context, do string) (r demoReply, err error) {
	err = c.out.Decode(&r)
	switch {
	case ctx.Err() != nil:
		return r, context.Cause(ctx)
	case err != nil:
		return r, fmt.Errorf("the second process is gone (%s): %w", do, err)
	case r.Error != "":
		return r, fmt.Errorf("the second process: %s: %s", do, r.Error)
	}
	return r, nil
}

func newDemoPeer(io streams) *cobra.Command {
	var p demoPeer
	cmd := &cobra.Command{
		Use: "demo-peer", Hidden: true, Args: noArgs,
		Short: "The second process of the demo",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.run(cmd.Context(), io)
		},
	}
	cmd.Flags().Uint8Var(&p.class, "tclass", 0, "traffic `class` of what it sends")
	cmd.Flags().BoolVar(&p.shm, "shm", false, "exchange packets through shared memory")
	cmd.Flags().StringVar(&p.address, "address", "127.0.0.1", "`address` of the device")
	return cmd
}

// demoPeer is the second process from within.
type demoPeer struct {
	address string
	class   uint8
	shm     bool
	dev     *verbs.Device
	pd      *verbs.PD
	mr      *verbs.MR // what the first process reaches
	inbox   *verbs.MR // where its messages go
	cq      *verbs.CQ
	qp      *verbs.QP // the one that was made last
}

func (p *demoPeer) run(ctx context.Context, s streams) error {
	err := p.setUp()
	defer func() {
		if p.dev != nil {
			p.dev.Close()
		}
	}()
	in, out := json.NewDecoder(s.in), json.NewEncoder(s.out)
	for {
		var q demoAsk
		if e := in.Decode(&q); errors.Is(e, io.EOF) {
			return nil
		} else if e != nil {
			return e
		}
		var r demoReply
		if err == nil {
			r, err = p.answer(ctx, q, out)
		}
		if err != nil {
			r.Error = err.Error()
		}
		if e := out.Encode(r); e != nil {
			return e
		}
		if err != nil {
			return nil // the first process has been told, and reports it
		}
	}
}

func (p *demoPeer) setUp() (err error) {
	addr, err := netip.ParseAddr(p.address)
	if err != nil {
		return err
	}
	if p.dev, err = verbs.OpenAddr(addr, verbs.Config{SharedMemory: p.shm}); err != nil {
		return err
	}
	if p.pd, err = p.dev.AllocPD(); err != nil {
		return err
	}
	access := verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic | verbs.FlushGlobal
	if p.mr, err = p.pd.AllocMemory(demoTotal, access); err != nil {
		return err
	}
	if p.inbox, err = p.pd.AllocMemory(demoArea, verbs.LocalWrite); err != nil {
		return err
	}
	if p.cq, err = p.dev.CreateCQ(4 * demoDepth); err != nil {
		return err
	}
	return p.newQP()
}

func (p *demoPeer) newQP() (err error) {
	if p.qp, err = p.pd.CreateQP(verbs.QPConfig{SendCQ: p.cq, RecvCQ: p.cq}); err != nil {
		return err
	}
	if err := p.qp.Init(); err != nil {
		return err
	}
	return p.postRecv()
}

func (p *demoPeer) postRecv() error {
	return p.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{p.inbox.All()}})
}

func (p *demoPeer) answer(ctx context.Context, q demoAsk, out *json.Encoder) (r demoReply, err error) {
	if q.Length < 0 || q.Length > demoTotal {
		return r, fmt.Errorf("length %d is not from 0 to %d", q.Length, demoTotal)
	}
	switch q.Do {
	case "hello":
		r.Endpoint, r.Memory = p.qp.Endpoint(), p.mr.Remote()
	case "newqp":
		err = p.newQP()
		r.Endpoint = p.qp.Endpoint()
	case "connect":
		err = p.qp.Connect(ctx, *q.Endpoint, withTrafficClass(p.class))
	case "grant":
		var mr *verbs.MR
		if mr, err = p.pd.AllocMemory(q.Length, verbs.LocalWrite|verbs.RemoteWrite, verbs.Invalidatable()); err == nil {
			r.Memory = mr.Remote()
		}
	case "received":
		return p.received(ctx)
	case "sum":
		r.Sum = sum(p.mr.Bytes()[:q.Length])
	case "fill":
		pattern(p.mr.Bytes()[:q.Length], q.Seed)
		r.Sum = sum(p.mr.Bytes()[:q.Length])
	case "store":
		err = p.mr.Store64(demoWord, q.Word)
	case "load":
		r.Word, err = p.mr.Load64(demoWord)
	case "stats":
		r.Stats = reportOf(p.dev)
	case "rate":
		err = p.rate(ctx, q, out)
	default:
		err = fmt.Errorf("unknown question %q", q.Do)
	}
	return r, err
}

// received waits for a message and says what it was. One with WRITE lies in
// the memory, the others in the inbox.
func (p *demoPeer) received(ctx context.Context) (r demoReply, err error) {
	var wc [1]verbs.WC
	if _, err := p.cq.Wait(ctx, wc[:]); err != nil {
		return r, err
	}
	if err := wc[0].Err(); err != nil {
		return r, err
	}
	mr := p.inbox
	if wc[0].Opcode == verbs.WCRecvWriteImm {
		mr = p.mr
	}
	n := int(wc[0].ByteLen)
	if wc[0].WithInv {
		r.Invalidated = wc[0].InvalidatedKey
	}
	r.Length, r.Imm, r.WithImm, r.Sum = n, wc[0].Imm, wc[0].WithImm, sum(mr.Bytes()[:min(n, mr.Len())])
	return r, p.postRecv()
}

// rate is the server of one measurement. It says where it waits before it is
// done; the answer to the question comes at the end.
func (p *demoPeer) rate(ctx context.Context, q demoAsk, out *json.Encoder) error {
	ln, err := net.Listen("tcp", net.JoinHostPort(p.dev.Addr().String(), "0"))
	if err != nil {
		return err
	}
	if err := out.Encode(demoReply{TCP: ln.Addr().String()}); err != nil {
		return err
	}
	_, err = perftest.Serve(ctx, p.dev, ln, perftest.Config{
		Test: q.Test, Size: q.Size, Duration: q.Duration, Iterations: q.Rounds, TrafficClass: p.class,
	})
	return err
}
