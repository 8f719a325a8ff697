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
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/config"
)

// listen opens a daemon's API: unix:/path, for this machine's root alone, or
// https://address:port, for whoever presents a certificate that the
// configuration's CA signed.
func listen(api string, files config.TLS) (net.Listener, error) {
	if path, ok := strings.CutPrefix(api, "unix:"); ok {
		return listenUnix(path)
	}
	address, ok := strings.CutPrefix(api, "https://")
	if !ok {
		return nil, fmt.Errorf("api %q: must be unix:/path or https://address:port", api)
	}
	settings, err := serverTLS(files)
	if err != nil {
		return nil, err
	}
	l, err := tls.Listen("tcp", strings.TrimSuffix(address, "/"), settings)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", api, err)
	}
	return l, nil
}

// listenUnix binds beside the path and renames, so that the socket never
// exists with wrong permissions and a dead daemon's socket is replaced in one
// step. The caller holds the daemon's lock: whoever left it there is gone.
func listenUnix(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make folder of the API's socket: %w", err)
	}
	temp := path + ".new"
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove %s: %w", temp, err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on unix:%s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(temp, 0o600)
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("listen on unix:%s: %w", path, err)
	}
	return unlinking{l, path}, nil
}

// unlinking removes the socket's file on Close: net would remove the name
// that it was bound to.
type unlinking struct {
	net.Listener
	path string
}

func (u unlinking) Close() error {
	err := os.Remove(u.path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, u.Listener.Close())
}

// serverTLS reads the files at every handshake, so that renewed certificates
// need no restart.
func serverTLS(files config.TLS) (*tls.Config, error) {
	load := func() (*tls.Config, error) {
		cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			return nil, fmt.Errorf("tls: read cert %q and key %q: %w", files.Cert, files.Key, err)
		}
		pem, err := os.ReadFile(files.CA)
		if err != nil {
			return nil, fmt.Errorf("tls: read ca: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls: ca %q holds no certificate", files.CA)
		}
		return &tls.Config{
			Certificates: []tls.Certificate{cert},
			ClientCAs:    pool,
			ClientAuth:   tls.RequireAndVerifyClientCert,
			MinVersion:   tls.VersionTLS13,
			NextProtos:   []string{"h2", "http/1.1"},
		}, nil
	}
	if _, err := load(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return load() },
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
		Handler:           h,
		Protocols:         protocols,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
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
	return nil
}
