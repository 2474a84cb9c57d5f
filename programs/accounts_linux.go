package programs

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/uverbs/quota"
)

// strangerLimits are what users may have where the configuration says nothing,
// other than root and the user of the daemon, who can stop it anyway. A quarter
// of what the system grants the daemon, at the most, is one's.
var strangerLimits = sync.OnceValue(func() quota.Limits {
	return quota.Limits{
		quota.QPs: 16 << 10, quota.CQs: 16 << 10, quota.CQEntries: 4 << 20, quota.SRQs: 16 << 10, quota.PDs: 16 << 10,
		quota.MRs: 128 << 10, quota.MWs: 128 << 10, quota.AHs: 128 << 10, quota.Attachments: 256, // each may be of a group of its own, of which a device has 1024
		quota.RingBytes: 1 << 30, quota.IDs: 16 << 10,
		quota.Channels:    min(4<<10, openFiles()/8),
		quota.Mappings:    maxMappings() / 4,
		quota.MappedBytes: memoryBytes() / 4,
	}
})

// openFiles returns how many files the daemon may have open.
func openFiles() int64 {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 1024
	}
	return int64(min(r.Cur, 1<<30))
}

// maxMappings is how many mappings of memory of programs there may be. The
// daemon needs others; without any it ends.
var maxMappings = sync.OnceValue(func() int64 {
	n, err := strconv.ParseInt(firstLine("/proc/sys/vm/max_map_count", ""), 10, 64)
	if err != nil || n <= 0 {
		n = 65530
	}
	return max(n/2, 4)
})

// memoryBytes is the memory of the machine, or of the daemon's cgroup.
func memoryBytes() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 1 << 30
	}
	most := int64(info.Totalram) * int64(info.Unit)
	for _, name := range []string{"/sys/fs/cgroup" + ownCgroup() + "/memory.max", "/sys/fs/cgroup/memory.max"} {
		if n, err := strconv.ParseInt(firstLine(name, ""), 10, 64); err == nil && n > 0 {
			return min(n, most)
		}
	}
	return most
}

// ownCgroup is the path of the daemon's cgroup.
func ownCgroup() string {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(b) {
		if path, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("0::")); ok {
			return string(path)
		}
	}
	return ""
}

// trusted reports whether a user can stop the daemon anyway.
func trusted(uid uint32) bool { return uid == 0 || uid == uint32(os.Geteuid()) }

// account returns that of a user, who is connected.
func (h *Host) account(uid uint32) *quota.Account {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.accounts[uid]
	if a == nil {
		most := h.config.User
		if !trusted(uid) {
			most = most.Or(strangerLimits())
		}
		a = quota.New(fmt.Sprintf("user %d", uid), h.all, most)
		h.accounts[uid] = a
	}
	return a
}

// connections is how many a user may have. Each takes about ten files.
func (h *Host) connections(uid uint32) int {
	switch {
	case uid == 0:
		return h.config.MaxConnections
	case h.config.MaxPerUser != 0:
		return h.config.MaxPerUser
	case trusted(uid):
		return 1024
	}
	return int(min(1024, max(openFiles()/32, 1)))
}

// refusedAtOnce is how many goroutines close connections that were refused.
const refusedAtOnce = 16

// undertaker closes connections that were refused. That may take for ever:
// whoever connected may have sent a file that waits when it is closed. So those
// of a user are closed one after the other.
type undertaker struct {
	mu      sync.Mutex
	waiting map[uint32][]*session
	busy    map[uint32]bool
}

// take takes a connection over.
func (u *undertaker) take(s *session) {
	s.shutDown()
	u.mu.Lock()
	defer u.mu.Unlock()
	uid := s.peer.UID
	if u.waiting == nil {
		u.waiting, u.busy = map[uint32][]*session{}, map[uint32]bool{}
	}
	u.waiting[uid] = append(u.waiting[uid], s)
	if !u.busy[uid] && len(u.busy) < refusedAtOnce {
		u.busy[uid] = true
		go u.work(uid)
	}
}

// work closes the connections of a user, and then those of others.
func (u *undertaker) work(uid uint32) {
	for {
		u.mu.Lock()
		if len(u.waiting[uid]) == 0 {
			delete(u.waiting, uid)
			delete(u.busy, uid)
			for other := range u.waiting {
				if !u.busy[other] {
					uid = other
					break
				}
			}
			if len(u.waiting[uid]) == 0 {
				u.mu.Unlock()
				return
			}
			u.busy[uid] = true
		}
		s := u.waiting[uid][0]
		u.waiting[uid] = u.waiting[uid][1:]
		u.mu.Unlock()
		s.hangUp()
	}
}
