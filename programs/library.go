package programs

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// preload is the source of the library, and the two libraries themselves where
// `make preload` has built them.
//
//go:embed preload
var preload embed.FS

// LibraryName and AdapterName are the file names of the library that is
// preloaded, and of the adapter, which it loads from the same folder. Both
// names may have something before the dot, the same in both.
const (
	LibraryName = "librocev2-preload.so"
	AdapterName = "librocev2-adapter.so"
)

// built is what `make preload` makes in the folder of the source.
func built(name string) string {
	return strings.TrimSuffix(name, ".so") + "-" + runtime.GOARCH + ".so.gz"
}

// ErrNoCompiler is returned where a library must be built and cannot be.
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

// Hash says which source the library is built from.
func Hash() string { _, hash := source(); return hash }

// mark is what a library contains of the hash.
func mark() []byte { return []byte("rocev2-preload-source:" + Hash()) }

// inside returns a library that this program carries, if it is of this source.
func inside(name string) []byte {
	packed, err := preload.Open("preload/" + built(name))
	if err != nil {
		return nil
	}
	defer packed.Close()
	r, err := gzip.NewReader(packed)
	if err != nil {
		return nil
	}
	lib, err := io.ReadAll(r)
	if err != nil || !bytes.Contains(lib, mark()) {
		return nil
	}
	return lib
}

// Carried reports whether this program carries the two libraries, of its own
// source.
func Carried() bool { return inside(LibraryName) != nil && inside(AdapterName) != nil }

// contents says what the two libraries are that this program carries: the
// adapter is of the whole module, so it changes where the library does not.
// Without them it is Hash.
func contents(carried fs.FS) string {
	sum := sha256.New()
	for _, name := range []string{LibraryName, AdapterName} {
		packed, err := fs.ReadFile(carried, "preload/"+built(name))
		if err != nil {
			return Hash()
		}
		sum.Write(packed)
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// Install has a folder contain the two libraries, with names that say what they
// are. It returns the file that is to be preloaded. What this
// program does not carry inside is built now, with the compilers that are
// there.
func Install(ctx context.Context, dir string) (file string, err error) {
	tag := contents(preload)
	named := func(name string) string {
		return filepath.Join(dir, strings.TrimSuffix(name, ".so")+"-"+tag+".so")
	}
	if err := install(ctx, named(AdapterName), AdapterName, BuildAdapter); err != nil {
		return "", err
	}
	return named(LibraryName), install(ctx, named(LibraryName), LibraryName, Build)
}

func install(ctx context.Context, file, name string, build func(context.Context, string) error) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	fresh, err := os.MkdirTemp(filepath.Dir(file), "library-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	to := filepath.Join(fresh, name)
	if lib := inside(name); lib != nil {
		err = os.WriteFile(to, lib, 0o600)
	} else {
		err = build(ctx, to)
	}
	if err == nil {
		err = os.Chmod(to, 0o755)
	}
	if err != nil {
		return err
	}
	return os.Rename(to, file)
}

// Pack builds both libraries into the folder of their source, from where this
// package carries them inside.
func Pack(ctx context.Context, folder string) error {
	dir, err := os.MkdirTemp("", "rocev2-preload-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := BuildBoth(ctx, dir); err != nil {
		return err
	}
	return cmp.Or(pack(filepath.Join(dir, LibraryName), folder), pack(filepath.Join(dir, AdapterName), folder))
}

// BuildBoth compiles both libraries into a folder.
func BuildBoth(ctx context.Context, dir string) error {
	if err := Build(ctx, filepath.Join(dir, LibraryName)); err != nil {
		return err
	}
	return BuildAdapter(ctx, filepath.Join(dir, AdapterName))
}

func pack(file, folder string) error {
	lib, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(lib); err != nil {
		return err
	}
	return cmp.Or(w.Close(), os.WriteFile(filepath.Join(folder, built(filepath.Base(file))), packed.Bytes(), 0o644))
}

// compiler finds cc, or $CC.
func compiler() (string, error) {
	path, err := exec.LookPath(cmp.Or(os.Getenv("CC"), "cc"))
	if err != nil {
		return "", ErrNoCompiler
	}
	return path, nil
}

// Build compiles the library with cc (or $CC) into a file.
func Build(ctx context.Context, file string) error {
	cc, err := compiler()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "rocev2-preload-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	names, hash := source()
	args := []string{"-std=gnu11", "-O2", "-g0", "-fPIC", "-shared", "-fvisibility=hidden", "-U_FORTIFY_SOURCE", "-Wall", "-Wextra", "-Wno-nonnull-compare",
		`-DSOURCE_HASH="` + hash + `"`, "-Wl,-z,now,-z,relro,-z,nodelete", "-Wl,-soname," + LibraryName, "-o", file}
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
	dl, err := loader(ctx, cc, dir)
	if err != nil {
		return err
	}
	return compile(ctx, cc, append(args, dl...)...)
}

func compile(ctx context.Context, compiler string, args ...string) error {
	if out, err := exec.CommandContext(ctx, compiler, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build the preload library: %w\n%s", err, out)
	}
	return nil
}

// loader returns what has the library loaded with libdl and libpthread, where a
// glibc before 2.34 has dlsym and the functions of threads. Newer ones have
// empty libraries of these names, and nothing to link with: so that is made.
func loader(ctx context.Context, compiler, dir string) (args []string, err error) {
	cmd := exec.CommandContext(ctx, compiler, "-E", "-P", "-x", "c", "-")
	cmd.Stdin = strings.NewReader("#include <limits.h>\n#ifdef __GLIBC__\nwith_glibc\n#endif\n")
	out, err := cmd.Output()
	if err != nil || !bytes.Contains(out, []byte("with_glibc")) {
		return nil, err
	}
	args = []string{"-Wl,--no-as-needed"}
	empty := filepath.Join(dir, "empty.c")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		return nil, err
	}
	for _, name := range []string{"libdl.so.2", "libpthread.so.0"} {
		lib := filepath.Join(dir, name)
		if err := compile(ctx, compiler, "-shared", "-Wl,-soname,"+name, "-o", lib, empty); err != nil {
			return nil, err
		}
		args = append(args, lib)
	}
	return args, nil
}
