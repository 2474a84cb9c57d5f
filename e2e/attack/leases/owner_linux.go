//go:build !portable

package leases

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/gosoftroce/rocev2/e2e/attack/victim"
)

// owned is what the daemon under attack, which owns the port, shows of itself.
type owned struct{ daemon *victim.Daemon }

// state is what the owner has.
type state struct {
	leases, files, threads int
	memory                 float64
}

// held is a lease as the daemon tells of it.
type held struct {
	Process    int `json:"process"`
	QueuePairs int `json:"queue_pairs"`
	Slot       int `json:"slot"`
	Slots      int `json:"slots"`
}

func (o owned) leases() ([]held, error) {
	var answer struct {
		Total int    `json:"total"`
		Items []held `json:"items"`
	}
	b, err := o.daemon.Get(victim.AdminPort, "/api/v1/leases?limit=256")
	if err == nil {
		err = json.Unmarshal(b, &answer)
	}
	if err == nil && (answer.Total == 0 || len(answer.Items) != answer.Total) {
		err = fmt.Errorf("%d of %d leases are told", len(answer.Items), answer.Total)
	}
	return answer.Items, err
}

func (o owned) look() (s state, err error) {
	list, err := o.leases()
	if err != nil {
		return s, err
	}
	s.leases = len(list)
	if s.files, err = o.daemon.Files(); err == nil {
		s.threads, err = o.daemon.Threads()
	}
	s.memory, _ = o.daemon.Memory()
	return s, err
}

// slotsOfHonest are those of the honest leaseholders, which are this process's.
func (o owned) slotsOfHonest() ([]int, error) {
	return o.slots(func(l *held) bool { return l != nil && l.Process == os.Getpid() })
}

// freeSlots are those that no lease has.
func (o owned) freeSlots() ([]int, error) { return o.slots(func(l *held) bool { return l == nil }) }

// slots returns those whose leases are wanted, nil for none, but for that of
// queue pair 1.
func (o owned) slots(want func(*held) bool) (list []int, err error) {
	all, err := o.leases()
	if err != nil {
		return nil, err
	}
	var of [256]*held
	for i := range all {
		for k := range all[i].Slots {
			of[all[i].Slot+k] = &all[i]
		}
	}
	for i, l := range of {
		if i != 1 && want(l) {
			list = append(list, i)
		}
	}
	if len(list) == 0 {
		err = fmt.Errorf("no such slot: the leases are %+v", all)
	}
	return list, err
}
