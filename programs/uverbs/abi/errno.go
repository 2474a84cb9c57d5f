package abi

import "strconv"

// Errno is an error number of Linux.
type Errno int32

// The error numbers that commands end with.
const (
	ENOENT        Errno = 2
	EIO           Errno = 5
	EBADF         Errno = 9
	EAGAIN        Errno = 11
	ENOMEM        Errno = 12
	EACCES        Errno = 13
	EFAULT        Errno = 14
	EBUSY         Errno = 16
	ENODEV        Errno = 19
	EINVAL        Errno = 22
	EMFILE        Errno = 24
	ENOSPC        Errno = 28
	ENOSYS        Errno = 38
	EOPNOTSUPP    Errno = 95
	EAFNOSUPPORT  Errno = 97
	EADDRINUSE    Errno = 98
	EADDRNOTAVAIL Errno = 99
)

// Error implements error.
func (e Errno) Error() string { return "errno " + strconv.Itoa(int(e)) }
