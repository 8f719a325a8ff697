package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// call is ctx for a call or watch, which ends with Close, too. A member that sees no
// leader is to send it back at once, so that another is asked.
func (c *Cluster) call(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(clientv3.WithRequireLeader(ctx))
	stop := context.AfterFunc(c.open, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// failed says in the store's words what ended a call.
func (c *Cluster) failed(ctx context.Context, err error) error {
	at := strings.Join(c.client.Endpoints(), ", ")
	switch {
	case err == nil:
		return nil
	case c.open.Err() != nil:
		return ErrClosed
	case errors.Is(err, ErrCompacted), errors.Is(err, rpctypes.ErrCompacted):
		return ErrCompacted
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return ErrLost
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w (%s): try again in a minute, controllers make room in it by themselves (in a cluster of your own: etcdctl compact, defrag, alarm disarm); what runs goes on", ErrFull, at)
	case denied(err):
		return fmt.Errorf("the store (%s) refuses this: %w", at, err)
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil, gone(err):
		if why := c.why.Load(); why != nil && errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w (%s)", err, *why)
		}
		return fmt.Errorf("%w (%s): %w: do more than half of its members run, and reach each other?", ErrUnavailable, at, err)
	}
	return fmt.Errorf("the store (%s): %w", at, err)
}

// note keeps why no member could be reached, a certificate, say: etcd's client makes
// a mere time-out of it.
func (c *Cluster) note(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := call(ctx, method, req, reply, conn, opts...)
	if err == nil {
		c.why.Store(nil)
	} else if why := status.Convert(err); why.Code() == codes.DeadlineExceeded {
		c.why.Store(new(why.Message()))
	}
	return err
}

// gone: no majority answered, in whatever words etcd or gRPC has for it.
func gone(err error) bool {
	switch code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted:
		return true
	}
	// A member that has just lost its leader has no code for it.
	return strings.Contains(err.Error(), "raft proposal dropped")
}

// denied: trying again would not help.
func denied(err error) bool {
	switch code(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument:
		return true
	}
	return false
}

func code(err error) codes.Code {
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return known.Code()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return codes.DeadlineExceeded
	}
	return status.Code(err)
}
