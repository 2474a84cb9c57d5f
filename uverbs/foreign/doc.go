// Package foreign makes memory regions of the memory of another process.
//
// A Space is the address space of a process. Its memory is reached in one of
// two ways:
//
//   - What the process has said to be pages of a memfd (Space.Map) is mapped
//     here, too. Such memory is as good as the own one, and atomics are atomic
//     towards the processors of that process.
//   - All else is copied by the kernel, from and to /proc/PID/mem or by
//     process_vm_readv(2). Words of such memory are read and written one after
//     the other, with a lock of the Space: atomics are atomic towards each
//     other, and not towards the process itself.
//
// Where the rules of ptrace(2) forbid the latter, a thread of the process does
// it (WithCopier).
//
// The other process is not trusted. It may end, unmap or protect what it has
// registered, lie about its memfds and change them: what happens is an error
// for who uses its regions. It cannot have memory of others touched. /proc/PID
// files belong to the address space that they were opened for, and not to who
// has the number or the place of the process later. process_vm_readv, which
// goes by the number, serves only where this process has no more rights than
// that one, and is asked before that the process lives and is the same program.
// (One that becomes another program at that very moment, and has memory at the
// same address, may be written to.)
//
// Nor can it hold up this one for long: a copy of memory of another user that
// takes too long is given up, with the space, and so are those of all spaces of
// the user for a while.
//
// Pages of a memfd that this process is the first to touch count as its own
// memory. So what a user has mapped here is counted (quota.MappedBytes),
// whether there are pages or not: it can take them out at any time. Mappings
// are counted too, for a process has only so many.
//
// What it does not do: pin pages. A page that the system has taken out of
// memory is fetched when it is copied.
package foreign
