package programs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// modulePath is that of this module, and adapterPackage the command that the
// adapter is built from.
const (
	modulePath     = "github.com/gosoftroce/rocev2"
	adapterPackage = modulePath + "/programs/adapter"
)

// adapterFlags are for the linker. Without a build ID, and without what git
// says of the folder, the same source has the same bytes in every folder.
// Without preemption by signals no thread of the program gets one. Without
// looks at the limits of its group of processes the runtime keeps no files of
// them, and does not wake up each second. (What the linker is told so takes the
// place of //go:debug.)
const adapterFlags = "-s -w -buildid= -X=runtime.godebugDefault=asyncpreemptoff=1,containermaxprocs=0,updatemaxprocs=0"

// ErrNoGo is returned where the adapter must be built and cannot be.
var ErrNoGo = errors.New("this program carries no adapter for its programs, and there is no Go compiler to build one: " +
	"install Go (https://go.dev/dl), or use a program that was built by 'make' where cc is")

// BuildAdapter compiles the adapter with the Go and C compilers into a file:
// from the module of the working folder if it is this one, or has this one's
// source beside it, or else from the version of this module that the running
// program is made of.
func BuildAdapter(ctx context.Context, file string) error {
	if _, err := compiler(); err != nil {
		return err
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		return ErrNoGo
	}
	dir, err := moduleSource(ctx, tool)
	if err != nil {
		return err
	}
	file, err = filepath.Abs(file)
	if err != nil {
		return err
	}
	flags := adapterFlags + " -X=main.source=" + string(mark())
	cmd := goCommand(ctx, tool, dir, "build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-tags=netgo,osusergo", "-ldflags="+flags, "-o", file, adapterPackage)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the adapter: %w\n%s", err, out)
	}
	os.Remove(strings.TrimSuffix(file, ".so") + ".h") // which cgo writes
	return nil
}

func goCommand(ctx context.Context, tool, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "GOFLAGS=", "GOWORK=off")
	return cmd
}

// moduleSource finds the folder of this module's source.
func moduleSource(ctx context.Context, tool string) (string, error) {
	out, err := goCommand(ctx, tool, "", "list", "-m", "-f", "{{if or .Main .Replace}}{{.Dir}}{{end}}", modulePath).Output()
	if dir := string(bytes.TrimSpace(out)); err == nil && dir != "" {
		return dir, nil
	}
	version := moduleVersion()
	if version == "" {
		return "", errors.New("build the adapter: the version of this program is not one that Go can fetch: run it in its source folder, or build it by 'make'")
	}
	cmd := goCommand(ctx, tool, os.TempDir(), "mod", "download", "-json", modulePath+"@"+version)
	cmd.Stderr = nil
	out, err = cmd.Output()
	var found struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &found); jsonErr != nil || found.Dir == "" {
		return "", fmt.Errorf("build the adapter: fetch %s@%s: %w %s", modulePath, version, errors.Join(err, jsonErr), found.Error)
	}
	return found.Dir, nil
}

// moduleVersion is the version of this module in the running program, or "".
func moduleVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	m := info.Main
	for _, dep := range info.Deps {
		if dep.Path == modulePath {
			m = *dep
		}
	}
	if m.Replace != nil {
		m = *m.Replace
	}
	if m.Path != modulePath || m.Version == "(devel)" || strings.Contains(m.Version, "+dirty") {
		return ""
	}
	return m.Version
}
