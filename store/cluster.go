package store

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/fairlead/fairlead/store/internal/zaplog"
)

// Options say where an etcd is, and what of it is Fairlead's.
type Options struct {
	// Endpoints are its members' client addresses: all https://host:port, all
	// http://host:port, or all unix:///path.
	Endpoints []string
	// TLS is for https: the authority, and the certificate of this process.
	TLS *tls.Config
	// Prefix is where the keys are; "": /fairlead/.
	Prefix string
	// Log takes what etcd's client warns of; nil: nobody.
	Log *slog.Logger
}

// Cluster is a Store that an etcd keeps.
type Cluster struct {
	o       Options
	client  *clientv3.Client
	kv      clientv3.KV
	watcher clientv3.Watcher
	// open ends with Close.
	open context.Context
	shut context.CancelFunc

	closing sync.Once
	// why is the last reason for a member's silence.
	why atomic.Pointer[string]

	mu     sync.Mutex
	leases map[*clusterLease]bool // nil: closed
}

// anyKey is for reads that only see whether a majority answers.
const anyKey = "?"

// Open gives a store of which nothing was asked yet: its members may come later, and
// come and go. It fails for addresses that are none.
func Open(o Options) (Store, error) {
	if len(o.Endpoints) == 0 {
		return nil, errors.New("a store needs the address of a member, such as https://192.0.2.1:2379")
	}
	scheme := func(endpoint string) string { s, _, _ := strings.Cut(endpoint, "://"); return s }
	for _, e := range o.Endpoints {
		if s := scheme(e); s != scheme(o.Endpoints[0]) || !slices.Contains([]string{"https", "http", "unix"}, s) {
			return nil, fmt.Errorf("the store's address %q: all are https://host:port, all http://host:port, or all unix:///path", e)
		}
	}
	if scheme(o.Endpoints[0]) != "https" {
		o.TLS = nil // or it would be spoken through the socket
	}
	o.Prefix = cmp.Or(o.Prefix, "/fairlead/")
	c := &Cluster{o: o, leases: map[*clusterLease]bool{}}
	var err error
	c.client, err = clientv3.New(clientv3.Config{
		Endpoints: o.Endpoints,
		TLS:       o.TLS,
		Logger:    zaplog.New(o.Log),
		// A member that vanished is noticed within 15 s, by who waits for it, too;
		// etcd hangs up on who asks more than once in 5 s.
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
		DialOptions: []grpc.DialOption{
			// One that is back is noticed within seconds: gRPC would wait up to
			// two minutes.
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
				MinConnectTimeout: 3 * time.Second,
			}),
			grpc.WithChainUnaryInterceptor(c.note),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("the store at %s: %w", strings.Join(o.Endpoints, ", "), err)
	}
	c.kv = namespace.NewKV(c.client.KV, o.Prefix)
	c.watcher = namespace.NewWatcher(c.client.Watcher, o.Prefix)
	c.open, c.shut = context.WithCancel(context.Background())
	return c, nil
}

func (c *Cluster) Members(endpoints []string) { c.client.SetEndpoints(endpoints...) }

func (c *Cluster) Read(ctx context.Context, prefix string) ([]Entry, int64, error) {
	ctx, done := c.call(ctx)
	defer done()
	resp, err := c.kv.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, 0, c.failed(ctx, err)
	}
	var entries []Entry
	for _, kv := range resp.Kvs {
		entries = append(entries, Entry{Key: string(kv.Key), Value: kv.Value, Rev: kv.ModRevision})
	}
	return entries, resp.Header.Revision, nil
}

func (c *Cluster) Commit(ctx context.Context, ifs []If, ops ...Op) (int64, error) {
	if err := check(len(c.o.Prefix), ifs, ops); err != nil {
		return 0, err
	}
	var conds []clientv3.Cmp
	for _, cond := range ifs {
		conds = append(conds, clientv3.Compare(clientv3.ModRevision(cond.Key), "=", cond.Rev))
	}
	var then []clientv3.Op
	for _, o := range ops {
		op, err := c.op(o)
		if err != nil {
			return 0, err
		}
		then = append(then, op)
	}
	if len(ops) == 0 {
		// Or a member would answer by itself, of what it knows.
		then = append(then, clientv3.OpGet(anyKey))
	}
	ctx, done := c.call(ctx)
	defer done()
	for {
		resp, err := c.kv.Txn(ctx).If(conds...).Then(then...).Commit()
		switch {
		case errors.Is(err, rpctypes.ErrNoLeader) && pause(ctx):
			// A member without a leader sent it back: the next one may have one.
		case err != nil:
			return 0, c.failed(ctx, err)
		case !resp.Succeeded:
			return 0, ErrConflict
		default:
			return resp.Header.Revision, nil
		}
	}
}

func (c *Cluster) op(o Op) (clientv3.Op, error) {
	switch {
	case o.Prefix:
		return clientv3.OpDelete(o.Key, clientv3.WithPrefix()), nil
	case o.Delete:
		return clientv3.OpDelete(o.Key), nil
	case o.Lease == nil:
		return clientv3.OpPut(o.Key, string(o.Value)), nil
	}
	l, ok := o.Lease.(*clusterLease)
	if !ok || l.c != c {
		return clientv3.Op{}, errForeign
	}
	if l.ctx.Err() != nil {
		return clientv3.Op{}, ErrLost
	}
	return clientv3.OpPut(o.Key, string(o.Value), clientv3.WithLease(l.id)), nil
}

func (c *Cluster) Watch(ctx context.Context, prefix string, rev int64) iter.Seq2[[]Event, error] {
	return func(yield func([]Event, error) bool) {
		callers := ctx
		ctx, done := c.call(ctx)
		defer done()
		for {
			more, err := c.watch(ctx, prefix, &rev, yield)
			switch {
			case !more || callers.Err() != nil:
				return
			case c.open.Err() != nil:
				yield(nil, ErrClosed)
				return
			case errors.Is(err, ErrCompacted) || denied(err):
				yield(nil, c.failed(ctx, err))
				return
			}
			pause(ctx)
		}
	}
}

// watch yields until etcd's watch ends, and says whether more is wanted. All that
// rev has was given.
func (c *Cluster) watch(ctx context.Context, prefix string, rev *int64, yield func([]Event, error) bool) (bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Progress moves a quiet watch on, so that it does not fall behind what is
	// compacted; of its beginning it is told, or one that waits for revisions that a
	// store made anew will not have for long would never know. Fragments are put
	// together by the client.
	events := c.watcher.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(max(*rev, 0)+1),
		clientv3.WithFragment(), clientv3.WithProgressNotify(), clientv3.WithCreatedNotify())
	// Where etcd's client takes the watch up again by itself, it is told of no beginning.
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		var resp clientv3.WatchResponse
		select {
		case <-look.C:
			if now, ok := c.revision(ctx); ok && now < *rev {
				return true, ErrCompacted
			}
			continue
		case r, ok := <-events:
			if !ok {
				return true, nil
			}
			resp = r
		}
		if err := resp.Err(); errors.Is(err, rpctypes.ErrCompacted) {
			return true, ErrCompacted
		} else if err != nil {
			return true, err
		}
		if resp.Header.Revision < *rev {
			// The store was made anew, or put back, or this member lags behind.
			if _, now, err := c.Read(ctx, anyKey); err != nil {
				return true, err
			} else if now < *rev {
				return true, ErrCompacted
			}
		}
		for len(resp.Events) > 0 {
			of := resp.Events[0].Kv.ModRevision
			n := slices.IndexFunc(resp.Events, func(e *clientv3.Event) bool { return e.Kv.ModRevision != of })
			if n < 0 {
				n = len(resp.Events)
			}
			batch := make([]Event, n)
			for i, e := range resp.Events[:n] {
				batch[i] = Event{Entry{string(e.Kv.Key), e.Kv.Value, of}, e.Type == clientv3.EventTypeDelete}
			}
			if ctx.Err() != nil || !yield(batch, nil) {
				return false, nil
			}
			*rev, resp.Events = of, resp.Events[n:]
		}
		if resp.IsProgressNotify() {
			*rev = max(*rev, resp.Header.Revision)
		}
	}
}

// lookEvery is how often a watch looks whether the store is still the one that it was.
const lookEvery = 5 * time.Second

// revision is the store's; ok is false where it does not answer soon.
func (c *Cluster) revision(ctx context.Context) (now int64, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, now, err := c.Read(ctx, anyKey)
	return now, err == nil
}

func (c *Cluster) Campaign(ctx context.Context, election, candidate string, lease Lease) (Leadership, error) {
	return campaign(ctx, c, election, candidate, lease)
}

func (c *Cluster) Close() (err error) {
	c.closing.Do(func() { err = c.close() })
	return err
}

func (c *Cluster) close() error {
	c.mu.Lock()
	leases := c.leases
	c.leases = nil
	c.mu.Unlock()
	// Their keys go now, if the store answers.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var ending sync.WaitGroup
	for l := range leases {
		ending.Go(func() { l.Close(ctx) })
	}
	ending.Wait()
	c.shut()
	if err := c.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
