package tlsfiles

import (
	"errors"
	"io"
	"os"
	"runtime"
)

// KeyLog is the part of an Error that is about the key log.
const KeyLog = "keylog"

// OpenKeyLog returns a writer for the KeyLogWriter of a configuration, which
// adds lines to a file (RFC 9850). With the file the connections can be read,
// so it is made for this user alone, and one that others may read is an error.
// The file is open only while a line is written, so that both sides and several
// processes may have the same one, and it may be moved away.
func OpenKeyLog(file string) (io.Writer, error) {
	w := keyLog(file)
	if _, err := w.Write(nil); err != nil {
		return nil, err
	}
	return w, nil
}

type keyLog string

func (l keyLog) Write(lines []byte) (n int, err error) {
	f, err := os.OpenFile(string(l), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return 0, &Error{KeyLog, err}
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil {
		return 0, &Error{KeyLog, err}
	}
	if m := st.Mode(); m.IsRegular() && m.Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return 0, wrong(KeyLog, "others may read or write %s (mode %04o), and with its keys the connections: chmod 600 %[1]s, or name another file", string(l), m.Perm())
	}
	return f.Write(lines)
}
