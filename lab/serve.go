package lab

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"
)

// serverHeader tells in every HTTP answer who answers.
const serverHeader = "X-Fairlead-Server"

// Bounds of what a client may ask a lab's server for.
const (
	maxBytes         = 10 << 30
	maxStreamSeconds = 3600
	minInterval      = time.Millisecond
)

// Serve is a lab's server, until ctx is done: HTTP on port 80 of every
// address, UDP echo on port 7 of the given ones. The answers tell its name:
//
//	GET  /                                the name
//	GET  /bytes/N                         N bytes
//	GET  /stream?seconds=S&interval=250ms a line every interval (StreamLine)
//	GET  /paced?seconds=S&chunks=N        N chunks of 128 bytes over S seconds (paced.go)
//	POST /…                               reads everything: name, count, CRC-32
//	GET  /health                          the name; 503 while it was told to fail
//	PUT  /health?fail=true                to fail (false: to be well), from the machine itself
//	GET  /echo                            a head, then every byte that comes
//	UDP  7                                the name, a space, the packet
//
// plainTCP: it is no MPTCP listener, as it would be.
//
// UDP sockets are bound to single addresses, because an answer must leave
// from the address that was asked.
func Serve(ctx context.Context, name string, addresses []netip.Addr, plainTCP bool, log *slog.Logger) error {
	for _, a := range addresses {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, echoPort)))
		if err != nil {
			return fmt.Errorf("listen for echo: %w", err)
		}
		go echo(c, name)
	}
	listen := net.ListenConfig{KeepAlive: -1}
	if plainTCP {
		listen.SetMultipathTCP(false)
	}
	listener, err := listen.Listen(ctx, "tcp", fmt.Sprintf(":%d", httpPort))
	if err != nil {
		return fmt.Errorf("listen for HTTP: %w", err)
	}
	// A connection that asks nothing is given up, as servers do, but later
	// than the load's own timeouts.
	server := &http.Server{Handler: handler(name), ReadHeaderTimeout: 30 * time.Second, IdleTimeout: time.Hour, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	go func() { <-ctx.Done(); server.Close() }()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func handler(name string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, name) })
	var failing atomic.Bool
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		if failing.Load() {
			http.Error(w, name+" was told to fail", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, name)
	})
	mux.HandleFunc("PUT /health", func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		fail, wrong := strconv.ParseBool(r.FormValue("fail"))
		switch {
		case err != nil || !from.Addr().IsLoopback():
			http.Error(w, "only from the machine itself", http.StatusForbidden)
		case wrong != nil:
			http.Error(w, fmt.Sprintf("fail=%s: must be true or false", r.FormValue("fail")), http.StatusBadRequest)
		default:
			failing.Store(fail)
			fmt.Fprintln(w, name)
		}
	})
	mux.HandleFunc("GET "+detourPath, func(w http.ResponseWriter, _ *http.Request) { serveEcho(w, name) })
	mux.HandleFunc("GET /bytes/{n}", serveBytes)
	mux.HandleFunc("GET /paced", servePaced)
	mux.HandleFunc("GET /stream", func(w http.ResponseWriter, r *http.Request) { serveStream(w, r, name) })
	receive := func(w http.ResponseWriter, r *http.Request) {
		sum := crc32.NewIEEE()
		n, err := io.Copy(sum, r.Body)
		if err != nil {
			return // the client is gone
		}
		fmt.Fprint(w, UploadAnswer(name, n, sum.Sum32()))
	}
	mux.HandleFunc("POST /", receive)
	mux.HandleFunc("PUT /", receive)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(serverHeader, name)
		w.Header().Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r)
	})
}

// StreamLine is line number seq of a server's stream. Its checksum makes a
// byte of another stream or line show.
func StreamLine(name string, seq int) string {
	text := fmt.Sprintf("%s %d", name, seq)
	return fmt.Sprintf("%s %08x\n", text, crc32.ChecksumIEEE([]byte(text)))
}

// UploadAnswer is what a server answers to an upload.
func UploadAnswer(name string, bytes int64, sum uint32) string {
	return fmt.Sprintf("%s received %d bytes crc32 %08x\n", name, bytes, sum)
}

// pattern is the content of /bytes, repeated: lines that tell their offset,
// so that a missing or doubled segment shows.
var pattern = func() []byte {
	var b []byte
	for len(b) < 64<<10 {
		b = fmt.Appendf(b, "%015x\n", len(b))
	}
	return b
}()

func serveBytes(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.PathValue("n"), 10, 64)
	if err != nil || n < 0 || n > maxBytes {
		http.Error(w, fmt.Sprintf("/bytes/%s: must be 0 to %d", r.PathValue("n"), int64(maxBytes)), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	for n > 0 {
		part := pattern[:min(n, int64(len(pattern)))]
		if _, err := w.Write(part); err != nil {
			return
		}
		n -= int64(len(part))
	}
}

func serveStream(w http.ResponseWriter, r *http.Request, name string) {
	seconds, err := strconv.ParseFloat(r.FormValue("seconds"), 64)
	if err != nil || seconds < 0 || seconds > maxStreamSeconds {
		http.Error(w, fmt.Sprintf("seconds=%s: must be 0 to %d", r.FormValue("seconds"), maxStreamSeconds), http.StatusBadRequest)
		return
	}
	interval := 250 * time.Millisecond
	if text := r.FormValue("interval"); text != "" {
		if interval, err = time.ParseDuration(text); err != nil || interval < minInterval {
			http.Error(w, fmt.Sprintf("interval=%s: must be a duration of at least %v, such as 250ms", text, minInterval), http.StatusBadRequest)
			return
		}
	}
	w.Header().Set("Content-Type", "text/plain")
	lines := int(seconds * float64(time.Second) / float64(interval))
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for seq := range lines {
		if _, err := io.WriteString(w, StreamLine(name, seq)); err != nil {
			return
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

// serveEcho takes the connection over and sends back what comes.
func serveEcho(w http.ResponseWriter, name string) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Time{})
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\n%s: %s\r\n\r\n", serverHeader, name); err != nil {
		return
	}
	b := make([]byte, 4096)
	for {
		n, err := buffered.Read(b)
		if err != nil {
			return
		}
		if _, err := conn.Write(b[:n]); err != nil {
			return
		}
	}
}

// echo answers every packet with the server's name and the packet.
func echo(c *net.UDPConn, name string) {
	buffer := make([]byte, 64<<10)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = c.WriteToUDPAddrPort(append([]byte(name+" "), buffer[:n]...), from)
		}
	}
}
