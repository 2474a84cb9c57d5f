// Package userdir finds the directory that a user has for sockets and files
// which its processes share, on Linux. [Open] makes it in a directory that
// others may write, such as /tmp: it is one that only this user can enter.
package userdir
