package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/config/yamlfile"
)

// listen opens a daemon's API: unix:/path, for this machine's root alone,
// https://address:port, for whoever presents a certificate that the
// configuration's CA signed, or, where the file allows it, http:// in the clear
// on the loopback.
func (d *Daemon) listen(api string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(api, "unix:"); ok {
		return listenUnix(path)
	}
	scheme, address, _ := strings.Cut(strings.TrimSuffix(api, "/"), "://")
	var settings *tls.Config
	var err error
	switch {
	case scheme == "https":
		settings, err = serverTLS(d.TLS, d.Log)
	case !plainly(api):
		err = fmt.Errorf("api %q: must be unix:/path or https://address:port", api)
	}
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return nil, fmt.Errorf("listen on %s: this machine has no such address: start the daemon where it is, or say with --name which entry of the file this machine is", api)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w; stop who listens there, or name another port", api, err)
	}
	l = d.guarded(l, "api")
	if settings != nil {
		l = tls.NewListener(l, settings)
	}
	return l, nil
}

// plainly says whether an endpoint answers in the clear, on the loopback.
func plainly(api string) bool {
	address, ok := strings.CutPrefix(strings.TrimSuffix(api, "/"), "http://")
	ap, err := netip.ParseAddrPort(address)
	return ok && err == nil && ap.Addr().IsLoopback()
}

// guarded puts a door before l, unless it is to be left out.
func (d *Daemon) guarded(l net.Listener, endpoint string) net.Listener {
	if d.Unguarded {
		return l
	}
	return newDoor(l, endpoint, d.refused, d.Log)
}

// loopbackName lets through what was asked of an address of the loopback, or of
// localhost. A web page may give a name of its own that address and have a
// browser of this machine ask for it.
func loopbackName(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(r.Host); err == nil {
			host = h
		}
		a, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if host != "localhost" && (err != nil || !a.IsLoopback()) {
			http.Error(w, "ask under one of the names 127.0.0.1, [::1] and localhost", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// listenUnix replaces what a dead daemon left at the path, and leaves alone
// a socket at which somebody listens: the daemon's lock does not keep that
// away, as it belongs to a state folder and the path to the configuration.
// The umask gives the socket its mode from the first moment.
func listenUnix(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make folder of the API's socket: %w", err)
	}
	if err := removeDeadSocket(path); err != nil {
		return nil, fmt.Errorf("listen on unix:%s: %w", path, err)
	}
	before := syscall.Umask(0o177)
	l, err := net.Listen("unix", path)
	syscall.Umask(before)
	if err != nil {
		return nil, fmt.Errorf("listen on unix:%s: %w", path, err)
	}
	return l, nil
}

// removeDeadSocket makes way at path. It removes only a socket that refuses
// connections; whatever else is there is an error.
func removeDeadSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != os.ModeSocket:
		return errors.New("there is something that is no socket: remove it, or name another path under api")
	}
	if err := awaitSilence(path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the API's old socket: %w; run as root", err)
	}
	return nil
}

// awaitSilence returns nil once a call to the socket is refused or the socket
// is gone. It waits a moment, as the kernel may close a killed daemon's socket
// after it dropped that daemon's lock.
func awaitSilence(path string) error {
	for deadline := time.Now().Add(lockTime); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.DialTimeout("unix", path, lockTime)
		if err == nil {
			conn.Close()
		}
		switch {
		case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, os.ErrNotExist):
			return nil
		case err != nil && !os.IsTimeout(err): // a full queue is a timeout too
			return fmt.Errorf("ask whether another daemon listens there: %w; remove the socket if not, or name another path under api", err)
		case time.Now().After(deadline):
			return fmt.Errorf("another daemon listens on %s; stop it, or give this one another api", path)
		}
	}
}

// certsRemedy ends errors about the files that tls names.
const certsRemedy = "make them with `fairlead certs FOLDER` and put this machine's there"

// serverTLS reads the files at every handshake, so that renewed certificates
// need no restart, and has every connection verified (no session is resumed). Whose
// certificate is refused is logged.
func serverTLS(files config.TLS, log *slog.Logger) (*tls.Config, error) {
	refused := &turnedAway{log: log}
	load := func() (*tls.Config, error) {
		cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			return nil, fmt.Errorf("tls: read cert %q and key %q: %w; %s", files.Cert, files.Key, err, certsRemedy)
		}
		pem, err := os.ReadFile(files.CA)
		if err != nil {
			return nil, fmt.Errorf("tls: read ca: %w; %s", err, certsRemedy)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls: ca %q holds no certificate in PEM; %s", files.CA, certsRemedy)
		}
		return &tls.Config{
			Certificates:           []tls.Certificate{cert},
			ClientCAs:              pool,
			ClientAuth:             tls.RequireAnyClientCert, // and VerifyConnection verifies it
			MinVersion:             tls.VersionTLS13,
			NextProtos:             []string{"h2", "http/1.1"},
			SessionTicketsDisabled: true,
		}, nil
	}
	if _, err := load(); err != nil {
		return nil, err
	}
	if info, err := os.Stat(files.Key); err != nil {
		return nil, fmt.Errorf("tls: look at key: %w", err)
	} else if wrong, remedy := yamlfile.Exposed(files.Key, info); wrong != "" {
		return nil, fmt.Errorf("tls: key %q: %s; %s", files.Key, wrong, remedy)
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			c, err := load()
			if err != nil {
				return nil, err
			}
			c.VerifyConnection = func(state tls.ConnectionState) error {
				err := verify(state, c.ClientCAs)
				if err != nil {
					refused.note(hello.Conn.RemoteAddr(), state, err)
				}
				return err
			}
			return c, nil
		},
	}, nil
}

// httpServer speaks HTTP/1.1 and HTTP/2, over cleartext too (a unix socket
// needs no TLS): gRPC, connect and curl all work.
func httpServer(h http.Handler, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:     h,
		Protocols:   protocols,
		ConnState:   greet,
		ConnContext: ofSocket,
		// Of the TLS handshake, too. A peer gives up sooner (api.Dial).
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		// A peer has a few calls under way: the Go server's 250 a connection, of
		// api.MaxMessage each, would be gigabytes.
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: 32},
		ErrorLog: errorLog(log),
	}
}

// serve runs the server until ctx ends, then lets calls under way finish for
// a few seconds.
func serve(ctx context.Context, s *http.Server, l net.Listener) error {
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := s.Shutdown(stop); err != nil {
		s.Close()
	}
	<-done // it may not have begun: the listener is closed when it has
	return nil
}
