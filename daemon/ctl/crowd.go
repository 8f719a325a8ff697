package ctl

import (
	"fmt"
	"net/http"
	"sync"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/access"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
)

// crowd bounds the calls that are under way, before anything of them is read: one
// caller cannot take what others need. Streams, which last as long as their callers
// like, and administrators, this machine's root among them, have places of their own.
type crowd struct {
	mu    sync.Mutex
	calls map[seat]int // under way, by caller
	all   map[part]int
	write *connect.ErrorWriter
}

// part is a kind of calls that takes no place of another.
type part struct{ stream, administers bool }

// seat is one caller's in a part. A name may be a user's of this machine and one of a
// certificate: their roles tell them apart.
type seat struct {
	part
	who string
}

// bounds of one caller's calls under way, and of all callers'.
type bounds struct{ one, all int }

var (
	callBounds   = bounds{one: 16, all: 128}
	streamBounds = bounds{one: 4, all: 64}
)

// maxRequest bounds a request, in bytes: a file is at most 4 MiB.
const maxRequest = 5 << 20

func newCrowd() *crowd {
	return &crowd{calls: map[seat]int{}, all: map[part]int{}, write: connect.NewErrorWriter()}
}

// within hands a call on to next, unless too many are under way.
func (c *crowd) within(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := access.From(r.Context())
		s := seat{who: caller.Name}
		s.stream = r.URL.Path == fairleadv1connect.ControlWatchEventsProcedure
		s.administers = caller.Role >= access.Administer
		if err := c.enter(s); err != nil {
			if c.write.IsSupported(r) {
				_ = c.write.Write(w, r, connect.NewError(connect.CodeResourceExhausted, err)) // the caller is gone, else
			} else {
				http.Error(w, err.Error(), http.StatusTooManyRequests)
			}
			return
		}
		defer c.leave(s)
		next.ServeHTTP(w, r)
	})
}

func (c *crowd) enter(s seat) error {
	most, what, remedy := callBounds, "calls", "wait for their answers"
	if s.stream {
		most, what, remedy = streamBounds, "streams of events", "end one"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.calls[s] >= most.one:
		return fmt.Errorf("%d %s of %s are under way: %s", most.one, what, s.who, remedy)
	case c.all[s.part] >= most.all:
		return fmt.Errorf("%d %s are under way: try again", most.all, what)
	}
	c.calls[s]++
	c.all[s.part]++
	return nil
}

func (c *crowd) leave(s seat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[s.part]--
	if c.calls[s]--; c.calls[s] == 0 {
		delete(c.calls, s)
	}
}
