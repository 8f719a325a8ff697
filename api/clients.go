package api

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
)

// clientRest is how long a client that nobody asks for is kept.
const clientRest = 10 * time.Minute

// Clients keeps a client, and with it connections, of each endpoint that is asked again
// and again. One that was not answered is made anew, so that a connection to a machine
// that is gone, or to certificates of before, is not tried again. Safe for use by several
// goroutines; nil keeps nothing.
type Clients struct {
	mu    sync.Mutex
	of    map[clientKey]*kept
	swept time.Time
}

type clientKey struct {
	endpoint string
	tls      config.TLS
}

type kept struct {
	fairleadv1connect.FairleadClient
	used time.Time
}

// Dial is as the function Dial.
func (c *Clients) Dial(endpoint string, t config.TLS) (fairleadv1connect.FairleadClient, error) {
	if c == nil {
		return Dial(endpoint, t)
	}
	key, now := clientKey{endpoint, t}, time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.of[key]; k != nil {
		k.used = now
		return k.FairleadClient, nil
	}
	client, base, err := dial(endpoint, t)
	if err != nil {
		return nil, err
	}
	k := &kept{used: now}
	client.Transport = unanswered{client.Transport, func() { c.forget(key, k) }}
	k.FairleadClient = fairleadv1connect.NewFairleadClient(client, base, connect.WithReadMaxBytes(MaxMessage))
	if c.of == nil {
		c.of = map[clientKey]*kept{}
	}
	if now.Sub(c.swept) > clientRest {
		for key, k := range c.of {
			if now.Sub(k.used) > clientRest {
				delete(c.of, key)
			}
		}
		c.swept = now
	}
	c.of[key] = k
	return k.FairleadClient, nil
}

func (c *Clients) forget(key clientKey, k *kept) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[key] == k {
		delete(c.of, key)
	}
}

// unanswered tells of requests that had no answer, but those that the caller gave up.
type unanswered struct {
	http.RoundTripper
	tell func()
}

func (u unanswered) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := u.RoundTripper.RoundTrip(r)
	if err != nil && !errors.Is(err, context.Canceled) {
		u.tell()
	}
	return resp, err
}
