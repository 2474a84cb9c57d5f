package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone
}

// refuse answers with an error, as JSON.
func refuse(w http.ResponseWriter, status int, format string, args ...any) {
	answer(w, status, struct {
		Error string `json:"error"`
	}{fmt.Sprintf(format, args...)})
}

const (
	maxBody      = 16 << 10        // of a request
	downloadTime = 5 * time.Minute // to write a capture
)

// Page is a part of a list.
type Page[T any] struct {
	Total  int `json:"total"`  // entries of the whole list
	Offset int `json:"offset"` // of the first one here
	Items  []T `json:"items"`
}

const (
	defaultLimit = 100
	maxLimit     = 1000
)

func page[T any](list []T, offset, limit int) Page[T] {
	p := Page[T]{Total: len(list), Offset: min(offset, len(list))}
	p.Items = append([]T{}, list[p.Offset:min(p.Offset+limit, len(list))]...)
	return p
}

// knownParameters returns an error for a parameter that a path has not, or that
// is there twice.
func knownParameters(r *http.Request, path string, known []string) error {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fmt.Errorf("the parameters cannot be read: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		switch {
		case len(known) == 0:
			return fmt.Errorf("%s has no parameters, and there is %q", path, clip(name))
		case !slices.Contains(known, name):
			return fmt.Errorf("%s has no parameter %q: there are %s", path, clip(name), strings.Join(known, ", "))
		case len(q[name]) > 1:
			return fmt.Errorf("the parameter %s is there %d times", name, len(q[name]))
		}
	}
	return nil
}

// window reads offset and limit of a request. An offset may lie past the end
// of a list, however large it is, and a limit above what there is.
func window(q url.Values) (offset, limit int, err error) {
	limit = defaultLimit
	for name, to := range map[string]*int{"offset": &offset, "limit": &limit} {
		v := q.Get(name)
		if v == "" {
			continue
		}
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return 0, 0, fmt.Errorf("%s=%s: it must be a whole number that is not negative", name, clip(v))
		}
		*to = int(min(n, math.MaxInt))
	}
	return offset, min(limit, maxLimit), nil
}

// paged returns the part of a list that a question asks for, in the order that
// it asks for.
func paged[T any](q url.Values, list []T) (Page[T], error) {
	offset, limit, err := window(q)
	if err != nil {
		return Page[T]{}, err
	}
	o, err := orderOf[T](q.Get("sort"))
	if err != nil {
		return Page[T]{}, err
	}
	return page(sorted(list, o), offset, limit), nil
}

// long gives a handler the time that a download may take.
func long(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(downloadTime)) // without it the usual time holds
		h(w, r)
	}
}
