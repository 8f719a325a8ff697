package lb_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/lab"
)

// A server is dead, the balancer's daemon is killed and started again: no new
// connection goes to that server, from the first packet on. It is known from the
// maps that packets go by, and from the disk: each alone is enough.
func TestDeadServerIsRemembered(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *lab.Options) { o.LBs = 1 })
	pid, err := os.ReadFile(filepath.Join(r.Dir(), "server2-web.pid"))
	r.must(err)
	n, err := strconv.Atoi(string(pid))
	r.must(err)
	r.must(syscall.Kill(n, syscall.SIGKILL))
	dead := func() *fairleadv1.Slot {
		for _, s := range r.status("lb1").Vips[0].Slots {
			if strings.HasSuffix(s.Server, "server2") {
				return s
			}
		}
		t.Fatal("no server2")
		return nil
	}
	r.eventually("server2 is down", func() bool {
		s := dead()
		return s.Health == fairleadv1.Health_HEALTH_DOWN && !s.TakesNew
	})
	address := strings.TrimSuffix(strings.TrimPrefix(r.URL(), "http://"), "/") + ":80"
	kept := filepath.Join(r.Dir(), "state", r.Name+"-lb1", "health.json")
	r.eventually("that is on disk", func() bool {
		text, err := os.ReadFile(kept)
		return err == nil && strings.Contains(string(text), `"up": false`)
	})

	for _, c := range []struct {
		what   string
		before func() error
	}{
		{"after a reboot", func() error { return exec.Command(r.program, "unload", r.Name+"-lb1").Run() }},
		{"forgotten by the disk", func() error { return os.Remove(kept) }},
	} {
		r.must(r.KillDaemon("lb1"))
		r.must(c.before())
		started := make(chan error)
		go func() { started <- r.StartDaemon(t.Context(), "lb1") }()
		// No faster than that: checks of the server that is well must come through.
		pace := time.NewTicker(20 * time.Millisecond)
		defer pace.Stop()
		for opened := 0; ; opened++ {
			<-pace.C
			select {
			case err := <-started:
				r.must(err)
				started = nil
			default:
			}
			if started == nil && opened > 20 {
				break
			}
			conn, err := r.dial(address)
			if err != nil {
				t.Fatalf("%s: new connection %d: %v", c.what, opened, err)
			}
			conn.Close()
		}
	}
}
