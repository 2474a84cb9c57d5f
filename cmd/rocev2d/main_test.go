package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rdma"
)

// binary builds the program once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rocev2d")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "rocev2d")
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func loopback() string {
	n := rand.Uint32()
	return fmt.Sprintf("127.%d.%d.%d", n>>16%250+2, n>>8%256, n%250+2)
}

// process is a daemon as a user runs it.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	addr string
	log  chan string // lines of its log
	seen []string
}

// start runs the real program. @ in args stands for its address.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return startCommand(t, exec.Command(path, args...), env)
}

// startCommand is start of a command that runs the program.
func startCommand(t *testing.T, cmd *exec.Cmd, env []string) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, addr: loopback(), log: make(chan string, 1000)}
	for i := range cmd.Args {
		if i > 0 && cmd.Args[i] == "@" {
			cmd.Args[i] = p.addr
		}
	}
	p.cmd.Env = append(os.Environ(), env...)
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.log)
		s := bufio.NewScanner(stderr)
		for s.Scan() {
			p.log <- s.Text()
		}
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	})
	return p
}

// expect waits for a line of the log that has all of texts in it.
func (p *process) expect(texts ...string) string {
	p.t.Helper()
	limit := time.After(2 * time.Minute)
	for {
		select {
		case line, ok := <-p.log:
			if !ok {
				p.t.Fatalf("the daemon ended without %q:\n%s", texts, strings.Join(p.seen, "\n"))
			}
			p.seen = append(p.seen, line)
			found := true
			for _, text := range texts {
				found = found && strings.Contains(line, text)
			}
			if found {
				return line
			}
		case <-limit:
			p.t.Fatalf("no line with %q:\n%s", texts, strings.Join(p.seen, "\n"))
		}
	}
}

// end sends a signal and returns the exit status.
func (p *process) end(sig os.Signal) int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
	for line := range p.log {
		p.seen = append(p.seen, line)
	}
	p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

func get(t *testing.T, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: status %d: %v\n%s", url, resp.StatusCode, err, b)
	}
	return string(b)
}

// The real program, from its configuration to SIGTERM: regions are used, the
// page, metrics and JSON are there, SIGHUP changes what it can.
func TestProgram(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no SIGHUP and SIGTERM: run it on another system")
	}
	file := filepath.Join(t.TempDir(), "rocev2d.toml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const base = "drain = \"5s\"\n[admin]\nlisten = \"127.0.0.1:0\"\n"
	write(base + "[[region]]\nname = \"one\"\nsize = \"1 MiB\"\naccess = \"read-write\"\n")
	p := start(t, []string{"ROCEV2D_CONFIG=" + file, "ROCEV2D_LOG_FORMAT=json"}, "--device", "@")
	var line struct{ URL string }
	if err := json.Unmarshal([]byte(p.expect(`"admin listening"`)), &line); err != nil {
		t.Fatal(err)
	}
	p.expect(`"ready"`)
	if s := get(t, line.URL); !strings.Contains(s, "<title>rocev2d</title>") {
		t.Errorf("the page: %s", s)
	}
	if s := get(t, line.URL+"metrics"); !strings.Contains(s, `rocev2_port_up{device="`+p.addr+`"} 1`) {
		t.Errorf("the metrics: %s", s)
	}
	c, err := rdma.Dial(t.Context(), net.JoinHostPort(p.addr, "7470"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.Region(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Write(t.Context(), []byte("hello"), 4096); err != nil {
		t.Fatal(err)
	}
	if s := get(t, line.URL+"api/v1/connections"); !strings.Contains(s, `"total":1`) {
		t.Errorf("connections: %s", s)
	}

	write(base + "[log]\nlevel = \"loud\"\n")
	p.hangUp()
	p.expect("nothing has changed", file+":5", "debug, info, warn and error")
	write(base + "[[region]]\nname = \"two\"\nsize = 4096\n[capture]\nmemory = \"1 MiB\"\n")
	p.hangUp()
	p.expect("needs a restart", "capture.memory")
	p.expect(`"reloaded"`)
	if _, err := c.Region(t.Context(), "two"); err != nil {
		t.Errorf("the new region: %v", err)
	}

	if code := p.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit status %d\n%s", code, strings.Join(p.seen, "\n"))
	}
	select {
	case <-c.Done():
	case <-time.After(2 * time.Minute):
		t.Error("the client was not disconnected")
	}
}

func (p *process) hangUp() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		p.t.Fatal(err)
	}
}

// invoke runs the program in this process.
func invoke(ctx context.Context, env map[string]string, args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	p := &program{stdout: &o, stderr: &e, lookup: func(k string) (string, bool) { v, ok := env[k]; return v, ok }}
	code = p.run(ctx, args)
	return code, o.String(), e.String()
}

// Mistakes are told with their place, and the exit status says whose they are.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "bad.toml")
	if err := os.WriteFile(file, []byte("[log]\nlevl = 1\nformat = \"xml\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	badChoice := filepath.Join(t.TempDir(), "congestion.toml")
	if err := os.WriteFile(badChoice, []byte("congestion = \"dcqcn\"\n[[device]]\naddress = \"127.0.0.1\"\ncongestion = \"static,rate=1\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken := loopback()
	for _, tt := range []struct {
		args      string
		env       map[string]string
		code      int
		out, errs string
	}{
		{args: "--check --config rocev2d.example.toml", out: "no mistakes"},
		{args: "--check --config rocev2d.example.toml", out: "region   scratch: 67108864 bytes, read-write, for 127.0.0.0/8, ::1/128"},
		{args: "--check", env: map[string]string{"ROCEV2D_REGION": "a=1KiB;allow=any"}, out: "region   a: 1024 bytes, read-only, for everybody"},
		{args: "--check --region b=4096", out: "for this host alone"},
		{args: "--check --config " + file, code: exitUsage, errs: file + ":2: log.levl: there is no such setting"},
		{args: "--check --config /nonexistent", code: exitUsage, errs: "/nonexistent: "},
		{args: "--check", env: map[string]string{"ROCEV2D_CONFIG": "/nonexistent"}, code: exitUsage, errs: "/nonexistent: "},
		{args: "--check --admin 0.0.0.0:1", code: exitUsage, errs: "flag --admin: admin.listen"},
		{args: "--check", env: map[string]string{"ROCEV2D_DRAIN": "soon"}, code: exitUsage, errs: "environment ROCEV2D_DRAIN: \"soon\" is not a time"},
		{args: "--check --congestion dcqcn-adapter,line=25G", out: "no mistakes"},
		{args: "--check --strict on,-no-receive --profile mlx5", out: "no mistakes"},
		{args: "--check --strict nonsense", code: exitUsage, errs: "flag --strict: strict: strict rules: \"nonsense\" is none; there are on, all,"},
		{args: "--check", env: map[string]string{"ROCEV2D_PROFILE": "mlx4"}, code: exitUsage, errs: "environment ROCEV2D_PROFILE: profile: "},
		{args: "--check --congestion reno", code: exitUsage, errs: "flag --congestion: congestion: bad choice of congestion control: \"reno\" is none of window, static,"},
		{args: "--check", env: map[string]string{"ROCEV2D_CONGESTION": "dcqcn,min=1"}, code: exitUsage, errs: "environment ROCEV2D_CONGESTION: congestion: "},
		{args: "--check --config " + badChoice, code: exitUsage, errs: badChoice + ":4: device.congestion: bad choice of congestion control: \"rate=1\" in"},
		{args: "--check --device 192.0.2.1", code: exitUsage, errs: "flag --device: device.address: "},
		{args: "--check --region a=;file=/nonexistent", code: exitUsage, errs: "flag --region: region.file: open /nonexistent"},
		{args: "--check --admin 127.0.0.1:18515 --device 127.0.0.1", code: exitUsage, errs: "flag --admin: admin.listen: 18515 is the port of perftest"},
		{args: "--confg x", code: exitUsage, errs: "unknown flag: --confg (do you mean --config?); "},
		{args: "--device", code: exitUsage, errs: "flag needs an argument: --device; "},
		{args: "--targets perftets --check", code: exitUsage, errs: "udaddy, mckey (do you mean perftest?)"},
		{args: "--log-level inof --check", code: exitUsage, errs: "warn and error (do you mean info?)"},
		{args: "--nonsense", code: exitUsage, errs: "\"rocev2d --help\" lists the flags"},
		{args: "file.toml", code: exitUsage, errs: "takes no arguments"},
		{args: "--device 192.0.2.1 --admin off", code: exitFailure, errs: "flag --device: "},
		{args: "--device " + taken + " --admin " + "127.0.0.1:bad", code: exitUsage, errs: "0 to 65535"},
		{args: "--version", out: "rocev2d "},
		{args: "--help", out: "ROCEV2D_LOG_LEVEL"},
		{args: "--help", out: "ROCEV2D_CONGESTION"},
	} {
		code, out, errs := invoke(t.Context(), tt.env, strings.Fields(tt.args)...)
		if code != tt.code || !strings.Contains(out, tt.out) || !strings.Contains(errs, tt.errs) {
			t.Errorf("%s %v: exit status %d, %q, %q; want %d, %q, %q", tt.args, tt.env, code, out, errs, tt.code, tt.out, tt.errs)
		}
	}
	if _, out, _ := invoke(t.Context(), nil, "--help"); strings.Contains(out, "--token ") {
		t.Error("a flag takes a token, so that everybody can see it")
	}
}

// Programs of other users may enter the directory, and read what is there, also
// where services are started with a umask that lets no others.
func TestProgramsDirectoryIsOpen(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("programs are served on Linux only: run it there")
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	parent, err := os.MkdirTemp("", "p") // a short name: the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(parent) })
	dir := filepath.Join(parent, "run", "rocev2")
	p := startCommand(t, exec.Command("sh", "-c", `umask 077; exec "$@"`, "sh", path, "--device", "@", "--admin", "off", "--targets", "off", "--programs", dir), nil)
	p.expect("msg=ready")
	files := 0
	err = filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() == "lock" || strings.HasPrefix(e.Name(), "new-") { // the daemon's own
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o444)
		if e.IsDir() {
			want = 0o555
		}
		if mode := info.Mode(); mode.Type() != fs.ModeSymlink && mode&want != want {
			t.Errorf("%s is %v", name, mode)
		}
		files++
		return nil
	})
	if err != nil || files < 20 {
		t.Errorf("%d files, %v", files, err)
	}
	if st, err := os.Stat(filepath.Dir(dir)); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("the directory above: %v, %v", st, err)
	}
	if code := p.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// systemd is told when the daemon is ready, and when it ends.
func TestNotify(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has systemd: run it there")
	}
	dir, err := os.MkdirTemp("", "n") // a short name: the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ln, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: dir + "/s", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	p := start(t, []string{"NOTIFY_SOCKET=" + dir + "/s"}, "--device", "@", "--admin", "off", "--targets", "off")
	read := func() string {
		b := make([]byte, 100)
		ln.SetReadDeadline(time.Now().Add(2 * time.Minute))
		n, err := ln.Read(b)
		if err != nil {
			t.Fatalf("%v\n%s", err, strings.Join(p.seen, "\n"))
		}
		return string(b[:n])
	}
	if s := read(); s != "READY=1" {
		t.Errorf("%q", s)
	}
	p.hangUp()
	if a, b := read(), read(); a != "RELOADING=1" || b != "READY=1" {
		t.Errorf("%q, %q", a, b)
	}
	if code := p.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if s := read(); s != "STOPPING=1" {
		t.Errorf("%q", s)
	}
}
