package store

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

type clusterLease struct {
	c   *Cluster
	id  clientv3.LeaseID
	ttl time.Duration
	// ctx ends, before done is closed, when the lease is no longer to be kept.
	ctx  context.Context
	stop context.CancelFunc
	done chan struct{}
}

func (c *Cluster) Grant(ctx context.Context, ttl time.Duration) (Lease, error) {
	if ttl <= 0 {
		return nil, errShort
	}
	ctx, done := c.call(ctx)
	defer done()
	asked := time.Now()
	seconds := int64((ttl + time.Second - 1) / time.Second)
	resp, err := c.client.Grant(ctx, seconds)
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	l := &clusterLease{c: c, id: resp.ID, ttl: time.Duration(resp.TTL) * time.Second, done: make(chan struct{})}
	l.ctx, l.stop = context.WithCancel(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leases == nil {
		l.stop()
		return nil, ErrClosed // what was granted ends by itself
	}
	c.leases[l] = true
	go l.keep(asked)
	return l, nil
}

// keep renews the lease until it ends. heard is before the moment when the store last
// heard of it. (etcd's KeepAlive counts from when the answer was there: its leases
// end here after they did at the store.)
func (l *clusterLease) keep(heard time.Time) {
	defer close(l.done)
	defer l.forget()
	for {
		asked := time.Now()
		// With one member that does not answer, there is time for two others.
		ctx, cancel := context.WithDeadline(l.ctx, earlier(asked.Add(l.ttl/4), heard.Add(l.ttl)))
		_, err := l.c.client.KeepAliveOnce(ctx, l.id)
		cancel()
		if err == nil {
			heard = asked
		}
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return
		}
		next := time.NewTimer(time.Until(earlier(asked.Add(l.ttl/4), heard.Add(l.ttl))))
		select {
		case <-l.ctx.Done():
			next.Stop()
			return
		case <-next.C:
		}
		if time.Since(heard) >= l.ttl {
			return
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (l *clusterLease) forget() {
	l.stop()
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	delete(l.c.leases, l)
}

func (l *clusterLease) Done() <-chan struct{} { return l.done }

func (l *clusterLease) Close(ctx context.Context) error {
	// First here: nobody is to think that it lives while it is being ended.
	l.stop()
	<-l.done
	ctx, done := l.c.call(ctx)
	defer done()
	_, err := l.c.client.Revoke(ctx, l.id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return l.c.failed(ctx, err)
}
