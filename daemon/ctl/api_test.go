package ctl

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/access"
	"github.com/fairlead/fairlead/certs"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon/daemontest"
)

// served is a controller that runs, its API over TLS on a loopback address, its
// store on a socket; and certificates of all kinds of callers.
type served struct {
	*deployment
	authority string // folder
	api       string
	log       *safeBuffer
	clients   map[string]*http.Client // by caller
	stop      func()
}

// safeBuffer is a log that several write.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// callers are whose certificates there are: a machine's, and one of each role.
var callers = map[string]access.Role{"lb1": access.None, "vic": access.View, "otto": access.Operate, "ada": access.Administer}

func serveAPI(t *testing.T) *served {
	t.Helper()
	s := &served{log: &safeBuffer{}, clients: map[string]*http.Client{}}
	s.authority = t.TempDir()
	address := fmt.Sprintf("127.12.%d.%d", byte(os.Getpid()>>8), byte(os.Getpid()))
	s.api = "https://" + freePorts(t, net.ParseIP(address), 1)[0]
	ca, err := certs.Open(s.authority)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(of certs.Subject) {
		t.Helper()
		if made, err := ca.Issue(of); err != nil || !made {
			t.Fatal(made, err)
		}
	}
	issue(certs.Subject{Name: "c1", Endpoints: []string{s.api}})
	for name, role := range callers {
		issue(certs.Subject{Name: name, Role: role})
	}
	dir, err := os.MkdirTemp("", "fl-ctl-") // t.TempDir() may be longer than a socket's path may be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s.deployment = newDeployment(t, fmt.Sprintf("tls: {ca: %[1]s/ca.pem, cert: %[1]s/cert.pem, key: %[1]s/key.pem}\ncontrollers: [{name: c1, store: \"unix:%[2]s/s\", api: %[3]q}]\n",
		s.authority+"/c1", dir, s.api))
	s.deployment.log = slog.New(slog.NewTextHandler(s.log, nil))
	s.stop = s.start("c1")
	for name := range callers {
		s.clients[name] = clientWith(t, s.tls(name))
	}
	s.awaitServing()
	return s
}

func (s *served) tls(name string) config.TLS { return tlsIn(filepath.Join(s.authority, name)) }

func tlsIn(folder string) config.TLS {
	return config.TLS{CA: filepath.Join(folder, "ca.pem"), Cert: filepath.Join(folder, "cert.pem"), Key: filepath.Join(folder, "key.pem")}
}

// clientWith calls with a certificate, as curl would.
func clientWith(t *testing.T, files config.TLS) *http.Client {
	t.Helper()
	settings, err := api.ClientTLS(files)
	if err != nil {
		t.Fatal(err)
	}
	// Shown whatever it is: a stranger's client does not look at it first, as ours do.
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	transport := &http.Transport{TLSClientConfig: settings, ForceAttemptHTTP2: true, MaxConnsPerHost: 4}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (s *served) awaitServing() {
	s.t.Helper()
	for deadline := time.Now().Add(daemontest.Patience); ; time.Sleep(10 * time.Millisecond) {
		if a := s.call("ada", "GetControllers", "{}"); a.status == http.StatusOK {
			return
		} else if time.Now().After(deadline) {
			s.t.Fatalf("the controller does not serve: %v %s\n%s", a.err, a.body, s.log)
		}
	}
}

// answered is what a call came to: an HTTP status (0: none), connect's code and message, the
// body.
type answered struct {
	status        int
	code, message string
	body          []byte
	err           error
}

func (s *served) call(who, method, body string) answered {
	return callWith(s.clients[who], s.api, method, "application/json", []byte(body))
}

func callWith(c *http.Client, at, method, kind string, body []byte) (a answered) {
	ctx, cancel := context.WithTimeout(context.Background(), daemontest.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at+"/fairlead.v1.Control/"+method, bytes.NewReader(body))
	if err != nil {
		return answered{err: err}
	}
	req.Header.Set("Content-Type", kind)
	resp, err := c.Do(req)
	if err != nil {
		return answered{err: err}
	}
	defer resp.Body.Close()
	a.status = resp.StatusCode
	a.body, a.err = io.ReadAll(resp.Body)
	var e struct{ Code, Message string }
	if json.Unmarshal(a.body, &e) == nil {
		a.code, a.message = e.Code, e.Message
	}
	return a
}

// envelope is a message of connect's streams.
func envelope(body string) []byte {
	return append([]byte{0, 0, 0, byte(len(body) >> 8), byte(len(body))}, body...)
}

// envelopes are the messages of a stream; the last one says how it ended.
func envelopes(t *testing.T, data []byte) (all []string) {
	t.Helper()
	for len(data) > 0 {
		if len(data) < 5 {
			t.Fatalf("half an envelope: %q", data)
		}
		n := int(data[1])<<24 | int(data[2])<<16 | int(data[3])<<8 | int(data[4])
		all = append(all, string(data[5:5+n]))
		data = data[5+n:]
	}
	return all
}

// file is a fairlead.yaml for Apply and Plan.
func (s *served) file(pool string) string {
	text, err := os.ReadFile(s.config.File())
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Replace(string(text), "servers: [s1]}", "servers: "+pool+"}", 1)
}

// with is a JSON object that has text in it.
func with(text, more string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"text": %s%s}`, quoted, more)
}

// begin makes the first version, with nobody there.
func (s *served) begin() {
	s.t.Helper()
	if a := s.call("ada", "Apply", with(s.file("[s1]"), `, "force": true`)); a.status != http.StatusOK {
		s.t.Fatalf("apply: %d %s", a.status, a.body)
	}
}
