package udp

import "syscall"

// portUnreachable is what the system calls the error.
const portUnreachable = syscall.WSAECONNRESET
