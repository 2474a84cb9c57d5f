package programs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// preload is the source of the library, and the library itself where `make
// preload` has built it.
//
//go:embed preload
var preload embed.FS

// LibraryName is the file name of the library.
const LibraryName = "librocev2-preload.so"

// built is what `make preload` makes in the folder of the source.
func built(arch string) string { return "librocev2-preload-" + arch + ".so" }

// BuiltName is the name that [Build]'s result has for this processor, if it is
// to be carried inside the programs that import this package.
func BuiltName() string { return built(runtime.GOARCH) }

// ErrNoCompiler is returned where the library must be built and cannot be.
var ErrNoCompiler = errors.New("this program carries no preload library for " + runtime.GOARCH + ", and there is no C compiler (cc) to build one: " +
	"install gcc, or use a program that was built by 'make' where cc is")

func source() (names []string, hash string) {
	entries, err := preload.ReadDir("preload")
	if err != nil {
		return nil, ""
	}
	sum := sha256.New()
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext != ".c" && ext != ".h" {
			continue
		}
		text, err := preload.ReadFile("preload/" + e.Name())
		if err != nil {
			continue
		}
		names = append(names, e.Name())
		fmt.Fprintf(sum, "%s %d\n", e.Name(), len(text))
		sum.Write(text)
	}
	return names, hex.EncodeToString(sum.Sum(nil))[:16]
}

// Library returns the preload library: the one inside, or one that the C
// compiler builds now.
func Library(ctx context.Context) ([]byte, error) {
	_, hash := source()
	lib, err := fs.ReadFile(preload, "preload/"+BuiltName())
	if err == nil && bytes.Contains(lib, []byte("rocev2-preload-source:"+hash)) {
		return lib, nil
	}
	dir, err := os.MkdirTemp("", "rocev2-preload-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, LibraryName)
	if err := Build(ctx, file); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

// Hash says which source the library is built from.
func Hash() string { _, hash := source(); return hash }

// Build compiles the library with cc (or $CC) into a file.
func Build(ctx context.Context, file string) error {
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "cc"
	}
	path, err := exec.LookPath(compiler)
	if err != nil {
		return ErrNoCompiler
	}
	dir, err := os.MkdirTemp("", "rocev2-preload-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	names, hash := source()
	args := []string{"-std=gnu11", "-O2", "-g0", "-fPIC", "-shared", "-fvisibility=hidden", "-U_FORTIFY_SOURCE", "-Wall", "-Wextra", "-Wno-nonnull-compare",
		`-DSOURCE_HASH="` + hash + `"`, "-Wl,-z,now,-z,relro", "-Wl,-soname," + LibraryName, "-o", file}
	for _, name := range names {
		text, err := preload.ReadFile("preload/" + name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
		if strings.HasSuffix(name, ".c") {
			args = append(args, filepath.Join(dir, name))
		}
	}
	dl, err := loader(ctx, path, dir)
	if err != nil {
		return err
	}
	return compile(ctx, path, append(args, dl...)...)
}

func compile(ctx context.Context, compiler string, args ...string) error {
	if out, err := exec.CommandContext(ctx, compiler, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build the preload library: %w\n%s", err, out)
	}
	return nil
}

// loader returns what has the library loaded with libdl, where a glibc before
// 2.34 has dlsym. Newer ones have an empty libdl, and nothing to link with: so
// that is made.
func loader(ctx context.Context, compiler, dir string) (args []string, err error) {
	cmd := exec.CommandContext(ctx, compiler, "-E", "-P", "-x", "c", "-")
	cmd.Stdin = strings.NewReader("#include <limits.h>\n#ifdef __GLIBC__\nwith_glibc\n#endif\n")
	out, err := cmd.Output()
	if err != nil || !bytes.Contains(out, []byte("with_glibc")) {
		return nil, err
	}
	empty, lib := filepath.Join(dir, "empty.c"), filepath.Join(dir, "libdl.so.2")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		return nil, err
	}
	return []string{"-Wl,--no-as-needed", lib}, compile(ctx, compiler, "-shared", "-Wl,-soname,libdl.so.2", "-o", lib, empty)
}
