package kernel

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/e2e/guest"
)

const (
	rxe    = Name
	rocev2 = "rocev2"
	module = "github.com/gosoftroce/rocev2"
	inside = "/tmp/rocev2" // the tool in the guest
)

// place is one end of a run.
type place struct {
	node   guest.Node
	argv   []string // without port and server
	server string   // how a client reaches this end
	ours   bool
}

// contest is one row: a client and a server, or a script that runs both, and
// what that is.
type contest struct {
	row            cell.Row
	client, server place
	script         func(port int) string
}

// Measure boots the guests, runs every contest in turns, and returns the rows.
func Measure(ctx context.Context, o Options) ([]cell.Row, error) {
	dir, err := os.MkdirTemp("", "rocebench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // the tool runs as an ordinary user
		return nil, err
	}
	bin, err := build(ctx, dir)
	if err != nil {
		return nil, err
	}
	o.Logf("booting the guests")
	lab, err := guest.Start(ctx, guest.Options{Logf: o.Logf})
	if err != nil {
		return nil, err
	}
	defer lab.Close()
	target, other := lab.Guest("6.12"), lab.Guest("6.1")
	if err := upload(ctx, target, bin); err != nil {
		return nil, err
	}
	var all []contest
	for _, op := range []string{"write", "read"} {
		for _, c := range contests(op, lab, target, other, bin) {
			if o.Match == nil || o.Match(c.row.Name) {
				all = append(all, c)
			}
		}
	}
	return play(ctx, all, o), nil
}

func build(ctx context.Context, dir string) (string, error) {
	bin := filepath.Join(dir, "rocev2")
	c := exec.CommandContext(ctx, "go", "build", "-o", bin, module+"/cmd/rocev2")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output(); err == nil {
		c.Dir = strings.TrimSpace(string(root))
	}
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the tool: %w: %s", err, tail(string(out)))
	}
	return bin, nil
}

func upload(ctx context.Context, g *guest.Guest, bin string) error {
	f, err := os.Open(bin)
	if err != nil {
		return err
	}
	defer f.Close()
	script := "cat > " + inside + " && chmod +x " + inside
	code, err := g.Attach(ctx, guest.Stdio{In: f}, "sh", "-c", script)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit status %d", code)
	}
	if err != nil {
		return fmt.Errorf("bringing the tool into the guest: %w", err)
	}
	return nil
}

func contests(op string, lab *guest.Lab, target, other *guest.Guest, bin string) []contest {
	common := []string{"-s", strconv.Itoa(messageSize), "-n", strconv.Itoa(iterations), "-m", "4096"}
	kernel := func(g *guest.Guest) place {
		argv := []string{"ib_" + op + "_bw", "-d", "rxe0", "-x", strconv.Itoa(g.GIDIndex(false)), "-F"}
		return place{node: g, argv: append(argv, common...), server: g.Addr4.String()}
	}
	us := func(n guest.Node, bin, addr string) place {
		argv := []string{bin, "perf", op + "_bw", "--json", "-d", addr}
		return place{node: n, argv: append(argv, common...), server: addr, ours: true}
	}
	a, b := us(target, inside, "127.0.0.1"), us(target, inside, "127.0.0.2")
	return []contest{
		{row: rowOf(op, "rxe-to-rxe", rxe, "both ends in one guest"), client: kernel(target), server: kernel(target)},
		{row: rowOf(op, "ours-in-guest", rocev2, "both ends in that guest"), client: b, server: a,
			script: func(port int) string { return together(b, a, port) }},
		{row: rowOf(op, "guest-to-rxe", rxe, "from another guest to that one"), client: kernel(other), server: kernel(target)},
		{row: rowOf(op, "ours-to-rxe", rocev2, "from outside to that guest's rxe"),
			client: us(lab.Host.Unprivileged(), bin, target.Host4.String()), server: kernel(target)},
	}
}

// together is a script that runs both ends in a network namespace of their own:
// in the guest's, rxe has UDP port 4791 on every address.
func together(client, server place, port int) string {
	return fmt.Sprintf(`unshare -n sh -c 'ip link set lo up
%[1]s -p %[4]d >/dev/null &
until grep -q ":%04[4]X .* 0A " /proc/net/tcp /proc/net/tcp6; do usleep 20000; done
%[2]s -p %[4]d %[3]s && wait'`, strings.Join(server.argv, " "), strings.Join(client.argv, " "), server.server, port)
}

func play(ctx context.Context, all []contest, o Options) []cell.Row {
	port := 21000
	for round := range o.Repeat {
		for i := range all {
			if ctx.Err() != nil {
				break
			}
			port++
			c := &all[i]
			s := c.run(ctx, port)
			c.row.Samples = append(c.row.Samples, s)
			if s.OK() {
				o.Logf("%-36s %d/%d  %10.3f %s", c.row.Name, round+1, o.Repeat, s.Value, c.row.Unit)
			} else {
				o.Logf("%-36s %d/%d  FAILED: %s", c.row.Name, round+1, o.Repeat, s.Why())
			}
		}
	}
	rows := make([]cell.Row, len(all))
	for i := range all {
		rows[i] = all[i].row
		rows[i].Summarise()
	}
	return rows
}

// run runs server and client once.
func (c *contest) run(ctx context.Context, port int) cell.Sample {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if c.script != nil {
		return c.value(guest.Run(ctx, c.client.node, "sh", "-c", c.script(port)))
	}
	portArgs := []string{"-p", strconv.Itoa(port)}
	srv, err := c.server.node.Start(ctx, append(c.server.argv[:len(c.server.argv):len(c.server.argv)], portArgs...)...)
	if err != nil {
		return cell.Failed(fmt.Errorf("server: %w", err))
	}
	if err := c.server.node.WaitListen(ctx, port); err != nil {
		cancel() // ends the server
		return cell.Failed(fmt.Errorf("server: %w", err))
	}
	argv := append(c.client.argv[:len(c.client.argv):len(c.client.argv)], portArgs...)
	res, err := guest.Run(ctx, c.client.node, append(argv, c.server.server)...)
	s := c.value(res, err)
	if !s.OK() {
		return s
	}
	if res, err := srv.Wait(); err != nil || res.Code != 0 {
		return cell.Failed(fmt.Errorf("server: %v, %+v", err, res))
	}
	return s
}

// value reads what the client printed.
func (c *contest) value(res *guest.Result, err error) cell.Sample {
	if err != nil {
		return cell.Failed(fmt.Errorf("client: %w", err))
	}
	if res.Code != 0 {
		return cell.Failed(fmt.Errorf("client: exit status %d: %s", res.Code, tail(res.Stdout+res.Stderr)))
	}
	parse := func(out string) (float64, error) { return parsePerftest(out, messageSize) }
	if c.client.ours {
		parse = parseOurs
	}
	v, err := parse(res.Stdout)
	if err != nil {
		return cell.Failed(err)
	}
	return cell.Sample{Value: v}
}
