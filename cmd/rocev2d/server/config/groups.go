package config

import (
	"fmt"
	"os/user"
	"slices"
	"strconv"
)

// gids returns the numbers of Groups.
func (p *Programs) gids() ([]string, error) {
	var list []string
	for _, name := range p.Groups {
		if _, err := strconv.ParseUint(name, 10, 32); err == nil {
			list = append(list, name)
			continue
		}
		g, err := user.LookupGroup(name)
		if err != nil {
			return nil, fmt.Errorf("%q is neither a group of this host, nor a number", name)
		}
		list = append(list, g.Gid)
	}
	return list, nil
}

// Member returns what reports whether a user is in one of Groups. It asks the
// system at each call, so a user who joins a group need not log in again, and
// the daemon need not start again.
func (p *Programs) Member() (func(uid uint32) bool, error) {
	gids, err := p.gids()
	if err != nil {
		return nil, err
	}
	return func(uid uint32) bool {
		if len(gids) == 0 {
			return false
		}
		u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
		if err != nil {
			return false // of another host, or of a container
		}
		of, err := u.GroupIds()
		return err == nil && slices.ContainsFunc(of, func(gid string) bool { return slices.Contains(gids, gid) })
	}, nil
}
