package member_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/access"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon/daemontest"
	"github.com/fairlead/fairlead/rollout"
)

// TestIgnoredFile: a daemon whose file was edited, and not applied, says so when it reads it
// at its start; one whose file says what the store wants does not.
func TestIgnoredFile(t *testing.T) {
	t.Parallel()
	d := stored(t)
	if _, err := d.Coordinator().Apply(t.Context(), d.Text(), rollout.Options{}); err != nil {
		t.Fatal(err)
	}
	const says = "lb1.yaml differs from fairlead.yaml of version "
	own := filepath.Join(d.Dir, "lb1.yaml")
	for _, edited := range []bool{false, true} {
		text := string(d.Text())
		if edited {
			text = strings.Replace(text, "port: 80", "port: 8080", 1)
		}
		if err := os.WriteFile(own, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		d.Stops["lb1"]()
		d.Start(config.RoleBalancer, "lb1")
		if d.Warned("lb1", says) != edited || d.Warned("lb1", "8080") != edited {
			t.Errorf("edited %v: %q", edited, d.Status("lb1").Warnings)
		}
	}
	// It stays said while others change what is wanted, and who reloads is told.
	if err := d.Drain("s1"); err != nil {
		t.Fatal(err)
	}
	d.Eventually("lb1 goes by the text of version 2", func() bool { return d.Warned("lb1", says+"2, ") })
	ann, err := api.Dial(d.Endpoint("lb1"), daemontest.User(t, d.Dir, access.Administer))
	if err != nil {
		t.Fatal(err)
	}
	r, err := ann.Reload(t.Context(), connect.NewRequest(&fairleadv1.ReloadRequest{}))
	if err != nil || len(r.Msg.Notes) != 1 || !strings.Contains(r.Msg.Notes[0], says+"2, ") || len(r.Msg.Refused) > 0 {
		t.Errorf("%v %v", r, err)
	}
	text, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Coordinator().Apply(t.Context(), text, rollout.Options{Force: true}); err != nil {
		t.Fatal(err)
	}
	d.Eventually("the file is what all go by", func() bool { return !d.Warned("lb1", says) })
}

// TestMisdirected: a daemon that is asked for what controllers answer says where they are,
// whichever way it is asked.
func TestMisdirected(t *testing.T) {
	t.Parallel()
	d := stored(t)
	c, err := api.DialControl(d.Endpoint("lb1"), d.Config.TLS)
	if err != nil {
		t.Fatal(err)
	}
	const says = "lb1 is a balancer, and does not answer %s: ask controllers: c1 at "
	_, err = c.DrainServer(t.Context(), connect.NewRequest(&fairleadv1.DrainServerRequest{Server: "s1"}))
	if want := fmt.Sprintf(says, "DrainServer"); connect.CodeOf(err) != connect.CodeUnimplemented || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	events, err := c.WatchEvents(t.Context(), connect.NewRequest(&fairleadv1.WatchEventsRequest{}))
	if err == nil {
		for events.Receive() {
			t.Error(events.Msg())
		}
		err = events.Err()
		events.Close()
	}
	if want := fmt.Sprintf(says, "WatchEvents"); connect.CodeOf(err) != connect.CodeUnimplemented || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
