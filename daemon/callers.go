package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/api/access"
)

// Who calls, and what of it is let in: TLS has a certificate verified, or the kernel
// says whose a socket's other end is; the Guard of every handler asks api/access.

// verify is the check of a caller's certificate, once the handshake has shown that it
// is theirs: by its own uses, since users' certificates are not those of TLS clients
// (access.UserUsage).
func verify(state tls.ConnectionState, authorities *x509.CertPool) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("no certificate")
	}
	leaf := state.PeerCertificates[0]
	between := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		between.AddCert(c)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: authorities, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return err
	}
	return access.Usable(leaf)
}

// turnedAway logs callers whose certificates were refused, one in a while.
type turnedAway struct {
	log  *slog.Logger
	mu   sync.Mutex
	said time.Time
	n    int // since then
}

// note is of one caller, from an address.
func (t *turnedAway) note(from net.Addr, state tls.ConnectionState, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	if time.Since(t.said) < refusedEvery {
		return
	}
	claims := ""
	if len(state.PeerCertificates) > 0 {
		claims = state.PeerCertificates[0].Subject.String()
	}
	t.log.Warn("a caller's certificate was refused", "from", from.String(), "claims", claims, "error", err, "refused", t.n)
	t.said, t.n = time.Now(), 0
}

// ofSocket is for http.Server.ConnContext: the process at the other end of a unix
// socket, as the kernel knows it.
func ofSocket(ctx context.Context, c net.Conn) context.Context {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return ctx
	}
	var creds *unix.Ucred
	var credsErr error
	err = raw.Control(func(fd uintptr) { creds, credsErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil || credsErr != nil {
		return ctx
	}
	return access.With(ctx, access.OfUser(creds.Uid))
}

// known says to next whose a request is, that came by TLS.
func known(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			r = r.WithContext(access.With(r.Context(), access.OfCertificate(r.TLS.PeerCertificates[0])))
		}
		next.ServeHTTP(w, r)
	})
}

// local lets a process of this machine operate, at an endpoint in the clear.
func local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(access.With(r.Context(), access.Caller{Name: "a process of this machine", Role: access.Operate})))
	})
}

// guard answers no call before the daemon serves, and none that its caller may not
// make.
type guard struct {
	d      *Daemon
	always []string // procedures that are answered from the beginning on
}

func (g guard) check(ctx context.Context, procedure string, request any) error {
	if err := access.Check(access.From(ctx), procedure, request); err != nil {
		return connect.NewError(connect.CodePermissionDenied, err)
	}
	if err := g.d.unready(); err != nil && !slices.Contains(g.always, procedure) {
		return connect.NewError(connect.CodeUnavailable, err)
	}
	return nil
}

// WrapUnary implements connect.Interceptor.
func (g guard) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if err := g.check(ctx, req.Spec().Procedure, req.Any()); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (g guard) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if err := g.check(ctx, conn.Spec().Procedure, nil); err != nil {
			return err
		}
		return next(ctx, conn)
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (guard) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}
