package ctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/store"
)

// TestFull: a store that takes nothing more refuses changes with the reason, answers all
// that looks, says so in its status and metrics, and is well again by itself when what
// filled it is gone, which audit log and metrics have.
func TestFull(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "fl-ctl-") // t.TempDir() may be longer than a socket's path may be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	metrics := freePorts(t, net.IPv4(127, 0, 0, 1), 1)[0]
	d := newDeployment(t, fmt.Sprintf("controllers: [{name: c1, store: \"unix:%[1]s/s\", api: \"unix:%[1]s/a\", metrics: %[2]q}]\n", dir, metrics))
	run := func() (stop func()) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			done <- Run(ctx, Options{File: d.config.File(), StateDir: filepath.Join(d.dir, "state"), Log: d.log, QuotaBytes: 4 << 20})
		}()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	stop := run()
	defer func() { stop() }()
	client := clientAt(t, "unix:"+dir+"/a")
	apply := func() error {
		text, err := os.ReadFile(d.config.File())
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Apply(t.Context(), connect.NewRequest(&fairleadv1.ApplyRequest{Text: string(text), Force: true}))
		return err
	}
	until(t, "it applies", func() bool { return apply() == nil })
	drain := func() error {
		_, err := client.DrainServer(t.Context(), connect.NewRequest(&fairleadv1.DrainServerRequest{Server: "s1", Force: true}))
		return err
	}
	scraped := func() string {
		resp, err := http.Get("http://" + metrics + "/metrics")
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	until(t, "it counts", func() bool {
		text := scraped()
		for _, want := range []string{`fairlead_api_calls_total{code="ok",method="Apply"} 1`, `fairlead_changes_total{outcome="done"} 1`, "fairlead_store_version 1",
			"fairlead_controller_leads 1", "fairlead_store_up 1", `fairlead_store_alarm{alarm="NOSPACE"} 0`, "fairlead_store_quota_bytes 4.194304e+06", "fairlead_version_in_force_seconds_count"} {
			if !strings.Contains(text, want) {
				return false
			}
		}
		return true
	})
	problems, err := promlint.New(strings.NewReader(scraped())).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "fairlead_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}

	s, _, err := rollout.Open(d.config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for n := 0; err == nil && n < 1000; n++ {
		_, err = s.Commit(t.Context(), nil, store.Op{Key: fmt.Sprint("fill/", n), Value: make([]byte, store.MaxValue/16)})
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatal(err)
	}
	if err := drain(); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "the store is full") || !strings.Contains(err.Error(), "by themselves") {
		t.Errorf("a change: %v", err)
	}
	looks(t, client)
	if text := scraped(); !strings.Contains(text, `fairlead_store_alarm{alarm="NOSPACE"} 1`) || !strings.Contains(text, `fairlead_changes_total{outcome="failed_precondition"} 1`) {
		t.Error(text)
	}
	// The audit log has it.
	audit, err := os.ReadFile(filepath.Join(d.dir, "state", "c1", auditName))
	if err != nil || !bytes.Contains(audit, []byte("the store is full")) {
		t.Errorf("%s %v", audit, err)
	}
	until(t, "it is said that nothing helps", func() bool {
		return strings.Contains(scraped(), `fairlead_store_room_made_total{outcome="failed"} 1`)
	})
	if _, err := s.Commit(t.Context(), nil, store.Op{Key: "fill/", Delete: true, Prefix: true}); err != nil {
		t.Fatal(err)
	}
	until(t, "changes are made again", func() bool { return drain() == nil })
	looks(t, client)
	until(t, "the alarm is over", func() bool {
		text := scraped()
		return strings.Contains(text, `fairlead_store_alarm{alarm="NOSPACE"} 0`) && strings.Contains(text, `fairlead_store_room_made_total{outcome="done"} 1`)
	})
	audit, err = os.ReadFile(filepath.Join(d.dir, "state", "c1", auditName))
	if err != nil || !bytes.Contains(audit, []byte(`"call":"store/room","what":{"bytes_before":`)) {
		t.Errorf("%s %v", audit, err)
	}
}

// looks asks for all that changes nothing.
func looks(t *testing.T, client fairleadv1connect.ControlClient) {
	t.Helper()
	config, err := client.GetConfig(t.Context(), connect.NewRequest(&fairleadv1.GetConfigRequest{}))
	if err != nil || !strings.Contains(config.Msg.Text, "192.0.2.10") {
		t.Errorf("the configuration: %v", err)
	}
	if _, err := client.GetHistory(t.Context(), connect.NewRequest(&fairleadv1.GetHistoryRequest{})); err != nil {
		t.Errorf("the history: %v", err)
	}
	if _, err := client.GetControllers(t.Context(), connect.NewRequest(&fairleadv1.GetControllersRequest{})); err != nil {
		t.Errorf("the controllers: %v", err)
	}
}
