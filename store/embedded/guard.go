package embedded

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/lease"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Who may write what. Etcd's own users would have to be made and unmade with each machine,
// by whoever reaches a store that has none yet. But a member needs to tell only two kinds
// of callers apart: those that keep the store, whose certificates name an address of a
// member, and all others, who say something under keys that are open to them. What is not
// listed here takes a certificate of the first kind.

// looks are what every certificate may call, beside writing, and granting and ending leases.
// A lease is renewed by those who may write what goes with it.
var looks = []string{
	pb.KV_Range_FullMethodName, pb.Watch_Watch_FullMethodName, pb.Lease_LeaseKeepAlive_FullMethodName,
	pb.Cluster_MemberList_FullMethodName, pb.Maintenance_Status_FullMethodName,
}

// What callers of the second kind write goes with a lease, and so soon when they do not come
// any more: else one of them fills the store for good, and nothing changes any more.
const (
	// longestLease is far above what daemons ask for, in seconds.
	longestLease = 60
	// mostValue and mostKey are far above what they write, in bytes: who can hold each of all
	// VIPs.
	mostValue, mostKey = 256 << 10, 512
)

// guard has calls looked at before they are done.
func (s *Server) guard() []grpc.ServerOption {
	if !s.o.guarded() {
		return nil
	}
	hosts := s.o.hosts()
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if c := caller(ctx); c != nil && !keeps(c, hosts) {
				if err := s.may(ctx, c, info.FullMethod, req); err != nil {
					return nil, err
				}
			}
			return handle(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if c := caller(stream.Context()); c != nil && !keeps(c, hosts) && !slices.Contains(looks, info.FullMethod) {
				return refused(c, "call "+info.FullMethod)
			} else if c != nil && !keeps(c, hosts) {
				stream = renewing{stream, func(id int64) error { return s.mayLease(stream.Context(), c, id) }}
			}
			return handle(server, stream)
		}),
	}
}

// renewing is a stream whose requests to keep a lease alive are looked at.
type renewing struct {
	grpc.ServerStream
	may func(lease int64) error
}

func (r renewing) RecvMsg(m any) error {
	err := r.ServerStream.RecvMsg(m)
	if keep, ok := m.(*pb.LeaseKeepAliveRequest); ok && err == nil {
		err = r.may(keep.ID)
	}
	return err
}

// guarded: certificates may not all write everything.
func (o *Options) guarded() bool { return len(o.Open)+len(o.Once) > 0 }

// hosts are the addresses of all members.
func (o *Options) hosts() (hosts []string) {
	at := slices.Concat(o.Client, o.Peer, o.Others)
	for _, u := range o.Initial {
		at = append(at, u)
	}
	for _, a := range at {
		if u, err := url.Parse(a); err == nil && u.Scheme == "https" && !slices.Contains(hosts, u.Hostname()) {
			hosts = append(hosts, u.Hostname())
		}
	}
	return hosts
}

// caller is the certificate of who calls; nil: there is no TLS, and whoever gets there may
// everything.
func caller(ctx context.Context) *x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return nil
	}
	return info.State.PeerCertificates[0]
}

// keeps: the certificate is that of a machine that keeps the store.
func keeps(c *x509.Certificate, hosts []string) bool {
	return slices.ContainsFunc(hosts, func(h string) bool { return c.VerifyHostname(h) == nil })
}

func refused(c *x509.Certificate, what string) error {
	return status.Errorf(codes.PermissionDenied, "the certificate of %q may not %s: it names no address of a controller, so it is for what a daemon says of itself", c.Subject.CommonName, what)
}

// may says why the certificate may not call that.
func (s *Server) may(ctx context.Context, c *x509.Certificate, method string, req any) error {
	switch r := req.(type) {
	case *pb.PutRequest:
		return s.mayPut(c, r)
	case *pb.DeleteRangeRequest:
		return s.mayWrite(c, string(r.Key), r.RangeEnd, true)
	case *pb.TxnRequest:
		return s.mayTxn(c, r)
	case *pb.LeaseGrantRequest:
		switch {
		case r.ID != 0:
			return refused(c, "choose a lease's number") // it may be that of another's next
		case r.TTL > longestLease:
			return refused(c, fmt.Sprintf("have a lease of more than %d s", longestLease))
		}
		return nil
	case *pb.LeaseRevokeRequest:
		return s.mayLease(ctx, c, r.ID) // its keys go with it
	}
	if !slices.Contains(looks, method) {
		return refused(c, "call "+method)
	}
	return nil
}

// mayLease: all that goes with a lease is open, so that it is no controller's, whose keys
// would go too soon, or stay when it is gone.
func (s *Server) mayLease(ctx context.Context, c *x509.Certificate, id int64) error {
	l, err := s.etcd.Server.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id, Keys: true})
	if errors.Is(err, lease.ErrLeaseNotFound) {
		return nil // the call itself says so
	}
	if err != nil {
		return status.Error(codes.Unavailable, err.Error()) // what goes with it is not known
	}
	for _, key := range l.Keys {
		if err := s.mayWrite(c, string(key), nil, true); err != nil {
			return err
		}
	}
	return nil
}

// mayTxn looks at all that a transaction may do, whichever way it goes. That it is small and
// has none within is looked at first: etcd says so only later.
func (s *Server) mayTxn(c *x509.Certificate, r *pb.TxnRequest) error {
	if most := int(s.etcd.Server.Cfg.MaxTxnOps); max(len(r.Compare), len(r.Success), len(r.Failure)) > most {
		return refused(c, fmt.Sprintf("do more than %d things at once", most))
	}
	for _, op := range slices.Concat(r.Success, r.Failure) {
		var err error
		switch {
		case op.GetRequestPut() != nil:
			if key := string(op.GetRequestPut().Key); !slices.Contains(s.o.Once, key) || !absent(r, key) || slices.Contains(r.Failure, op) {
				err = s.mayPut(c, op.GetRequestPut())
			}
		case op.GetRequestDeleteRange() != nil:
			err = s.mayWrite(c, string(op.GetRequestDeleteRange().Key), op.GetRequestDeleteRange().RangeEnd, true)
		case op.GetRequestTxn() != nil:
			err = refused(c, "have a transaction within one")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mayPut: key is open, and what is written there is small and goes with a lease.
func (s *Server) mayPut(c *x509.Certificate, r *pb.PutRequest) error {
	key := string(r.Key)
	if len(key) > mostKey || len(r.Value) > mostValue {
		return refused(c, fmt.Sprintf("write %d bytes to %.*s", len(r.Value), mostKey, key))
	}
	if err := s.mayWrite(c, key, nil, false); err != nil {
		return err
	}
	if r.Lease == 0 || r.IgnoreLease { // what is there may go with none
		return refused(c, "write "+key+" without a lease")
	}
	return nil
}

// absent: the transaction succeeds only where there is no such key.
func absent(r *pb.TxnRequest, key string) bool {
	return slices.ContainsFunc(r.Compare, func(c *pb.Compare) bool {
		_, byRevision := c.TargetUnion.(*pb.Compare_ModRevision)
		return byRevision && string(c.Key) == key && len(c.RangeEnd) == 0 && c.Target == pb.Compare_MOD && c.Result == pb.Compare_EQUAL && c.GetModRevision() == 0
	})
}

// mayWrite: key is open, and alone.
func (s *Server) mayWrite(c *x509.Certificate, key string, end []byte, deletes bool) error {
	open := slices.ContainsFunc(s.o.Open, func(o string) bool {
		return key == o || strings.HasSuffix(o, "/") && strings.HasPrefix(key, o)
	})
	if open && len(end) == 0 {
		return nil
	}
	if deletes {
		return refused(c, "delete "+key)
	}
	return refused(c, "write "+key)
}
