package embedded

import (
	"context"
	"crypto/tls"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"

	"github.com/fairlead/fairlead/certs"
	"github.com/fairlead/fairlead/store/internal/zaplog"
)

// TestGuard: a certificate that names no member's address may say what is open to it, and
// nothing else: neither by the way of a transaction, of somebody's lease, of etcd's other
// services, nor as a member. One that does may everything.
func TestGuard(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority, err := certs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []certs.Subject{{Name: "c1", Endpoints: []string{"https://127.0.0.1:1"}}, {Name: "s1", Endpoints: []string{"https://127.0.0.9:1"}}} {
		if _, err := authority.Issue(s); err != nil {
			t.Fatal(err)
		}
	}
	files := func(name string) TLS {
		at := func(file string) string { return filepath.Join(dir, name, file) }
		return TLS{Cert: at("cert.pem"), Key: at("key.pem"), CA: at("ca.pem")}
	}
	config := func(name string) *tls.Config {
		f := files(name)
		c, err := transport.TLSInfo{CertFile: f.Cert, KeyFile: f.Key, TrustedCAFile: f.CA}.ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	o := Options{Name: "c1", Dir: t.TempDir(), TLS: files("c1"), Client: []string{"https://" + free(t)}, Peer: []string{"https://" + free(t)},
		Open: []string{"/f/daemons/", "/f/one"}, Once: []string{"/f/clock"}}
	server := started(t, o)[0]
	client := func(name string) *clientv3.Client {
		c, err := clientv3.New(clientv3.Config{Endpoints: server.Endpoints(), TLS: config(name), Logger: zaplog.New(nil)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	c1, s1 := client("c1"), client("s1")
	lease := func(c *clientv3.Client) clientv3.LeaseID {
		l, err := c.Grant(within(t), 60)
		if err != nil {
			t.Fatal(err)
		}
		return l.ID
	}
	leads, own, second := lease(c1), lease(s1), lease(s1)
	if _, err := c1.Put(within(t), "/f/leader/1", "c1", clientv3.WithLease(leads)); err != nil {
		t.Fatal(err)
	}
	put, once := clientv3.OpPut, clientv3.Compare(clientv3.ModRevision("/f/clock"), "=", 0)
	txn := func(c *clientv3.Client, ctx context.Context, conds []clientv3.Cmp, then, otherwise []clientv3.Op) error {
		_, err := c.Txn(ctx).If(conds...).Then(then...).Else(otherwise...).Commit()
		return err
	}
	type ops = []clientv3.Op
	type do func(context.Context, *clientv3.Client) error
	may := map[string]do{
		"say": func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Put(ctx, "/f/daemons/s1", "", clientv3.WithLease(own))
			return err
		},
		"say in a transaction": func(ctx context.Context, c *clientv3.Client) error {
			return txn(c, ctx, nil, ops{put("/f/daemons/s1", "1", clientv3.WithLease(own)), put("/f/one", "2", clientv3.WithLease(own))}, ops{clientv3.OpDelete("/f/one")})
		},
		"read": func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Get(ctx, "/f/", clientv3.WithPrefix())
			return err
		},
		"watch": func(ctx context.Context, c *clientv3.Client) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			r := <-c.Watch(ctx, "/f/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
			return r.Err()
		},
		"live": func(ctx context.Context, c *clientv3.Client) error { _, err := c.KeepAliveOnce(ctx, own); return err },
		"end":  func(ctx context.Context, c *clientv3.Client) error { _, err := c.Revoke(ctx, second); return err },
		"fix the clock": func(ctx context.Context, c *clientv3.Client) error {
			return txn(c, ctx, []clientv3.Cmp{once}, ops{put("/f/clock", "1")}, nil)
		},
	}
	for name, f := range may {
		if err := f(within(t), s1); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, f := range map[string]do{
		"write": func(ctx context.Context, c *clientv3.Client) error { _, err := c.Put(ctx, "/f/head", ""); return err },
		"write beside": func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Put(ctx, "/f/one/more", "")
			return err
		},
		"delete": func(ctx context.Context, c *clientv3.Client) error { _, err := c.Delete(ctx, "/f/head"); return err },
		"delete all": func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Delete(ctx, "/f/daemons/", clientv3.WithFromKey())
			return err
		},
		"write the clock": func(ctx context.Context, c *clientv3.Client) error { _, err := c.Put(ctx, "/f/clock", ""); return err },
		"in a transaction": func(ctx context.Context, c *clientv3.Client) error {
			return txn(c, ctx, nil, ops{put("/f/one", ""), put("/f/head", "")}, nil)
		},
		"where it fails": func(ctx context.Context, c *clientv3.Client) error {
			return txn(c, ctx, []clientv3.Cmp{once}, nil, ops{put("/f/clock", "2")})
		},
		"another key is none": func(ctx context.Context, c *clientv3.Client) error {
			return txn(c, ctx, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision("/f/none"), "=", 0)}, ops{put("/f/clock", "2")}, nil)
		},
		"within a transaction": func(ctx context.Context, c *clientv3.Client) error {
			return txn(c, ctx, nil, ops{clientv3.OpTxn(nil, nil, ops{clientv3.OpDelete("/f/head")})}, nil)
		},
		"have a transaction within one": func(ctx context.Context, c *clientv3.Client) error {
			return txn(c, ctx, nil, ops{clientv3.OpTxn(nil, ops{clientv3.OpGet("/f/head")}, nil)}, nil)
		},
		"do very much at once": func(ctx context.Context, c *clientv3.Client) error {
			return txn(c, ctx, slices.Repeat([]clientv3.Cmp{once}, 200), nil, nil)
		},
		"say for ever": func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Put(ctx, "/f/daemons/s1", "")
			return err
		},
		"keep what it said for ever": func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Put(ctx, "/f/daemons/s1", "", clientv3.WithIgnoreLease())
			return err
		},
		"say very much": func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Put(ctx, "/f/daemons/s1", strings.Repeat("x", mostValue+1), clientv3.WithLease(own))
			return err
		},
		"say it under a long name": func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Put(ctx, "/f/daemons/"+strings.Repeat("x", mostKey), "", clientv3.WithLease(own))
			return err
		},
		"live long": func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Grant(ctx, longestLease+1)
			return err
		},
		"choose a lease": func(ctx context.Context, c *clientv3.Client) error {
			_, err := pb.NewLeaseClient(c.ActiveConnection()).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: 7, TTL: 5})
			return err
		},
		"have another lead on": func(ctx context.Context, c *clientv3.Client) error { _, err := c.KeepAliveOnce(ctx, leads); return err },
		"end another's lease":  func(ctx context.Context, c *clientv3.Client) error { _, err := c.Revoke(ctx, leads); return err },
		"list leases":          func(ctx context.Context, c *clientv3.Client) error { _, err := c.Leases(ctx); return err },
		"forget":               func(ctx context.Context, c *clientv3.Client) error { _, err := c.Compact(ctx, 1); return err },
		"add a member": func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.MemberAdd(ctx, []string{"https://127.0.0.9:1"})
			return err
		},
		"raise an alarm": func(ctx context.Context, c *clientv3.Client) error {
			_, err := pb.NewMaintenanceClient(c.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_CORRUPT})
			return err
		},
		"make a user": func(ctx context.Context, c *clientv3.Client) error { _, err := c.UserAdd(ctx, "root", "x"); return err },
		"lock": func(ctx context.Context, c *clientv3.Client) error {
			_, err := v3lockpb.NewLockClient(c.ActiveConnection()).Lock(ctx, &v3lockpb.LockRequest{Name: []byte("/f/leader")})
			return err
		},
		"copy all": func(ctx context.Context, c *clientv3.Client) error {
			r, err := c.Snapshot(ctx)
			if err == nil {
				_, err = r.Read(make([]byte, 1))
			}
			return err
		},
	} {
		if err := f(within(t), s1); err == nil || !strings.Contains(err.Error(), `the certificate of "s1" may not`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c1.Put(within(t), "/f/head", "1"); err != nil {
		t.Error(err)
	}
	for name, welcome := range map[string]bool{"c1": true, "s1": false} {
		h := http.Client{Transport: &http.Transport{TLSClientConfig: config(name)}}
		resp, err := h.Get(o.Peer[0] + "/members")
		if err == nil {
			resp.Body.Close()
		}
		if (err == nil) != welcome {
			t.Errorf("as a member with the certificate of %s: %v", name, err)
		}
	}
}
