package main

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gosoftroce/rocev2/programs"
)

// asPlugin has the test's own program be the plugin.
const asPlugin = "ROCEV2_TEST_AS_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		main()
	}
	os.Exit(m.Run())
}

func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // what runs ends at once
	code = run(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

// What is wrong on the command line is said in a line, with the flag or the
// command that is meant.
func TestUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		want string
	}{
		{"--resuorce x/y", "do you mean --resource?"},
		{"--nonsense", "\"rocev2-device-plugin --help\" lists the flags"},
		{"prepare --nonsense", "\"rocev2-device-plugin prepare --help\" lists the flags"},
		{"--ports many", "invalid argument \"many\" for \"--ports\""},
		{"--ports 0 --resource port", "--ports: 0: it must be between 1 and 10000"},
		{"prepar", "do you mean prepare?"},
		{"prepare now", "takes no arguments, but got \"now\""},
		{"prepare --user=-1", "--user and --group are numbers"},
	} {
		code, stdout, stderr := call(t, strings.Fields(c.args)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: status %d, %q, %q", c.args, code, stdout, stderr)
		}
		for line := range strings.Lines(stderr) {
			if !strings.HasPrefix(line, "rocev2-device-plugin: ") {
				t.Errorf("%s: the line %q", c.args, line)
			}
		}
	}
	if code, _, stderr := call(t, "prepare", "--directory", "relative"); code != exitFailure || !strings.Contains(stderr, "not an absolute path") {
		t.Errorf("prepare: status %d, %q", code, stderr)
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for args, wants := range map[string][]string{
		"--help":         {"resources.limits: {rocev2/port: 1}", "--resource name", "(default 32)", "prepare", "/run/rocev2-pods/programs"},
		"prepare --help": {"CAP_CHOWN", "--user number", "(default 65532)"},
		"--version":      {"rocev2-device-plugin "},
	} {
		code, stdout, stderr := call(t, strings.Fields(args)...)
		if code != exitOK || stderr != "" {
			t.Errorf("%s: status %d, %q", args, code, stderr)
		}
		for _, want := range wants {
			if !strings.Contains(stdout, want) {
				t.Errorf("%s does not say %q:\n%s", args, want, stdout)
			}
		}
		for line := range strings.Lines(stdout) {
			if len(line) > 200 {
				t.Errorf("%s: a line of %d characters", args, len(line))
			}
		}
	}
}

// registry counts the registrations of plugins.
type registry struct {
	api.UnimplementedRegistrationServer
	came chan string
}

func (r *registry) Register(_ context.Context, req *api.RegisterRequest) (*api.Empty, error) {
	r.came <- req.Endpoint
	return &api.Empty{}, nil
}

// A plugin that was killed leaves its socket, which the next one replaces.
// SIGTERM ends that one with status 0, and the socket goes.
func TestKilled(t *testing.T) {
	t.Parallel()
	if !programs.Carried() {
		t.Skip("this test carries no libraries for pods (make preload builds them)")
	}
	dir, err := os.MkdirTemp("", "dp") // sockets have short names
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	kubelet, reg := grpc.NewServer(), &registry{came: make(chan string, 10)}
	api.RegisterRegistrationServer(kubelet, reg)
	go func() { _ = kubelet.Serve(l) }() // it ends by Stop
	defer kubelet.Stop()
	libraries, socket := t.TempDir(), filepath.Join(dir, "rocev2-port.sock")
	for _, end := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "--kubelet", dir, "--directory", t.TempDir(), "--libraries", libraries)
		cmd.Env = append(os.Environ(), asPlugin+"=1")
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-reg.came:
		case <-t.Context().Done():
			t.Fatal("the plugin does not register")
		}
		if _, err := os.Lstat(socket); err != nil {
			t.Error(err)
		}
		if err := cmd.Process.Signal(end); err != nil {
			t.Fatal(err)
		}
		for s := bufio.NewScanner(stderr); s.Scan(); {
			t.Log(s.Text())
		}
		err = cmd.Wait()
		_, there := os.Lstat(socket)
		if killed := end == syscall.SIGKILL; (err != nil) != killed || (there == nil) != killed {
			t.Errorf("after %v: %v, the socket: %v", end, err, there)
		}
	}
}
