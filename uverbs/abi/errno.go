package abi

import "strconv"

// Errno is an error number of Linux.
type Errno int32

// The error numbers that commands end with.
const (
	EPERM           Errno = 1
	ENOENT          Errno = 2
	EINTR           Errno = 4
	EIO             Errno = 5
	E2BIG           Errno = 7
	EBADF           Errno = 9
	EAGAIN          Errno = 11
	ENOMEM          Errno = 12
	EACCES          Errno = 13
	EFAULT          Errno = 14
	EBUSY           Errno = 16
	EEXIST          Errno = 17
	ENODEV          Errno = 19
	EINVAL          Errno = 22
	EMFILE          Errno = 24
	ENOSPC          Errno = 28
	ERANGE          Errno = 34
	ENOSYS          Errno = 38
	ENODATA         Errno = 61
	EPROTO          Errno = 71
	EDESTADDRREQ    Errno = 89
	EPROTONOSUPPORT Errno = 93
	EOPNOTSUPP      Errno = 95
	EAFNOSUPPORT    Errno = 97
	EADDRINUSE      Errno = 98
	EADDRNOTAVAIL   Errno = 99
	ENETUNREACH     Errno = 101
	ECONNABORTED    Errno = 103
	ECONNRESET      Errno = 104
	EISCONN         Errno = 106
	ENOTCONN        Errno = 107
	ETIMEDOUT       Errno = 110
	ECONNREFUSED    Errno = 111
	EHOSTUNREACH    Errno = 113
)

// Error implements error.
func (e Errno) Error() string { return "errno " + strconv.Itoa(int(e)) }
