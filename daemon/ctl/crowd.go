package ctl

import (
	"fmt"
	"net/http"
	"sync"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/access"
)

// crowd bounds the calls that are under way, before anything of them is read: one
// caller cannot take what others need.
type crowd struct {
	mu    sync.Mutex
	calls map[string]int // under way, by caller
	all   int
	write *connect.ErrorWriter
}

const (
	// mostOfOne and mostCalls bound calls of one caller, and of all.
	mostOfOne = 16
	mostCalls = 128
	// maxRequest bounds a request, in bytes: a file is at most 4 MiB.
	maxRequest = 5 << 20
)

func newCrowd() *crowd {
	return &crowd{calls: map[string]int{}, write: connect.NewErrorWriter()}
}

// within hands a call on to next, unless too many are under way.
func (c *crowd) within(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := access.From(r.Context()).Name
		if err := c.enter(who); err != nil {
			if c.write.IsSupported(r) {
				_ = c.write.Write(w, r, connect.NewError(connect.CodeResourceExhausted, err)) // the caller is gone, else
			} else {
				http.Error(w, err.Error(), http.StatusTooManyRequests)
			}
			return
		}
		defer c.leave(who)
		next.ServeHTTP(w, r)
	})
}

func (c *crowd) enter(who string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.calls[who] >= mostOfOne:
		return fmt.Errorf("%d calls of %s are under way: wait for their answers", mostOfOne, who)
	case c.all >= mostCalls:
		return fmt.Errorf("%d calls are under way: try again", mostCalls)
	}
	c.calls[who]++
	c.all++
	return nil
}

func (c *crowd) leave(who string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.calls[who]--; c.calls[who] == 0 {
		delete(c.calls, who)
	}
}
