package ctl

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon/daemontest"
)

// TestBadChanges: what cannot be in force is refused before anything changes, with the
// reason, and the audit log has it; force does not help.
func TestBadChanges(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "fl-ctl-") // t.TempDir() may be longer than a socket's path may be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := newDeployment(t, fmt.Sprintf("controllers: [{name: c1, store: \"unix:%[1]s/s\", api: \"unix:%[1]s/a\"}]\n", dir))
	d.start("c1")
	client := clientAt(t, "unix:"+dir+"/a")
	text, err := os.ReadFile(d.config.File())
	if err != nil {
		t.Fatal(err)
	}
	apply := func(client fairleadv1connect.ControlClient, text string) error {
		_, err := client.Apply(t.Context(), connect.NewRequest(&fairleadv1.ApplyRequest{Text: text, Force: true}))
		return err
	}
	until(t, "it applies", func() bool { return apply(client, string(text)) == nil })
	var many strings.Builder
	for i := range 40 {
		fmt.Fprintf(&many, ", {name: v%d, address: 192.0.2.%d, port: 80, servers: [s1]}", i, 20+i)
	}
	for want, bad := range map[string]string{
		"has the same address, port 80 and protocol tcp": strings.Replace(string(text), "servers: [s1]}]\n", "servers: [s1]}, {name: again, address: 192.0.2.10, port: 80, servers: [s1]}]\n", 1),
		"does not fit": "limits: {server_lines: 64}\n" + strings.Replace(string(text), "servers: [s1]}]", "servers: [s1]}"+many.String()+"]", 1),
		"later":        string(text) + "later: true\n",
	} {
		err := apply(client, bad)
		if code := connect.CodeOf(err); code != connect.CodeInvalidArgument && code != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	history, err := client.GetHistory(t.Context(), connect.NewRequest(&fairleadv1.GetHistoryRequest{}))
	if err != nil || len(history.Msg.Versions) != 1 {
		t.Errorf("%v %v", history, err)
	}
	audit, err := os.ReadFile(filepath.Join(d.dir, "state", "c1", auditName))
	if err != nil || bytes.Count(audit, []byte(`"what":{"force":true},"outcome":"`)) < 3 {
		t.Errorf("%s %v", audit, err)
	}

	// Another site's controller is led to this store: it changes nothing, and says why.
	other := filepath.Join(d.dir, "other.yaml")
	foreign := strings.Replace(string(text), "secret: 0001", "secret: f001", 1)
	foreign = fmt.Sprintf("store: {etcd: [\"unix:%[1]s/s\"]}\ncontrollers: [{name: x1, api: \"unix:%[1]s/x\"}]\n", dir) + foreign[strings.Index(foreign, "\n")+1:]
	if err := os.WriteFile(other, []byte(foreign), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{File: other, StateDir: filepath.Join(d.dir, "otherstate"), Log: d.log})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	stranger := clientAt(t, "unix:"+dir+"/x")
	until(t, "it answers", func() bool {
		err := apply(stranger, foreign)
		return connect.CodeOf(err) != connect.CodeUnavailable
	})
	if err := apply(stranger, foreign); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "another deployment's versions") {
		t.Errorf("another site's change: %v", err)
	}
	if _, err := stranger.GetConfig(t.Context(), connect.NewRequest(&fairleadv1.GetConfigRequest{})); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("another site's look: %v", err)
	}
	if err := apply(client, string(text)); err != nil {
		t.Errorf("its own goes on: %v", err)
	}
}

func clientAt(t *testing.T, endpoint string) fairleadv1connect.ControlClient {
	t.Helper()
	client, err := api.DialControl(endpoint, config.TLS{})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// until waits for something.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(daemontest.Patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}
