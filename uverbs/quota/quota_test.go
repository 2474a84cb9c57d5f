package quota_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/gosoftroce/rocev2/uverbs/quota"
)

// What is taken from an account is taken from those above it, or from none.
func TestAccounts(t *testing.T) {
	t.Parallel()
	daemon := quota.New("the daemon", nil, quota.Limits{quota.QPs: 10})
	user := quota.New("user 7", daemon, quota.Limits{quota.QPs: 6})
	a, b := quota.New("a file", user, quota.Limits{quota.QPs: 4}), quota.New("a file", user, quota.Limits{})
	other := quota.New("user 8", daemon, quota.Limits{})
	take := func(of *quota.Account, n int64, whose string) {
		t.Helper()
		err := of.Take(quota.QPs, n)
		if whose == "" && err != nil || whose != "" && (!errors.Is(err, quota.ErrFull) || !strings.Contains(err.Error(), whose)) {
			t.Errorf("%v, want %q", err, whose)
		}
	}
	take(a, 5, "a file")
	take(a, 4, "")
	take(b, 3, "user 7")
	take(b, 2, "")
	take(other, 5, "the daemon")
	take(other, 4, "")
	if n := daemon.Have(quota.QPs); n != 10 {
		t.Errorf("the daemon has %d", n)
	}
	a.Give(quota.QPs, 1)
	take(b, 1, "")
	a.Clear()
	b.Clear()
	if n := daemon.Have(quota.QPs); !user.Empty() || n != 4 {
		t.Errorf("the daemon has %d", n)
	}
	take(b, 6, "")
}

// Nobody counts where there is no account.
func TestNoAccount(t *testing.T) {
	t.Parallel()
	var none *quota.Account
	if err := none.Take(quota.IDs, 1<<40); err != nil || !none.Empty() || none.Have(quota.IDs) != 0 {
		t.Error(err)
	}
	none.Give(quota.IDs, 1)
	none.Clear()
}

// Files of a user that take and give at once end with nothing, and never have
// more than the user may.
func TestAccountsAtOnce(t *testing.T) {
	t.Parallel()
	user := quota.New("user 7", nil, quota.Limits{quota.MRs: 3})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			file := quota.New("a file", user, quota.Limits{})
			for range 200 {
				if file.Take(quota.MRs, 2) == nil {
					if n := user.Have(quota.MRs); n < 2 || n > 3 {
						t.Errorf("the user has %d", n)
					}
					file.Give(quota.MRs, 2)
				}
			}
			_ = file.Take(quota.MRs, 1)
			file.Clear()
		})
	}
	wg.Wait()
	if !user.Empty() {
		t.Error("something is left")
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	got := quota.Limits{quota.QPs: 5}.Or(quota.Limits{quota.QPs: 9, quota.CQs: 3})
	if want := (quota.Limits{quota.QPs: 5, quota.CQs: 3}); got != want {
		t.Errorf("%v", got)
	}
	for k := range quota.Kinds {
		if k.String() == "" {
			t.Errorf("kind %d has no name", int(k))
		}
	}
}
