package lb_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/cmd/built"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/lab"
)

// The rig of these tests is a lab:
//
//	client ── router ──┬── lb1      fl-daemonPID-…
//	                   ├── lb2
//	                   ├── server1
//	                   └── server2
type rig struct {
	*lab.Lab
	t       *testing.T
	program string
}

const patience = 20 * time.Second

// rigs there have been, of which several may stand at a time.
var rigs atomic.Uint32

func newRig(t *testing.T, change ...func(*lab.Options)) *rig {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces need root: run the tests with sudo")
	}
	program := built.Fairlead(t)
	name := fmt.Sprint("daemon", os.Getpid(), "r", rigs.Add(1))
	options := lab.Options{Name: name, Servers: 2, LBs: 2, Program: program}
	for _, f := range change {
		f(&options)
	}
	l, err := lab.Up(t.Context(), options, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, m := range []string{"lb1", "server1"} {
				log, _ := os.ReadFile(filepath.Join(l.Dir(), m+".log"))
				t.Logf("log of %s:\n%s", m, log)
			}
		}
		if err := lab.Down(name); err != nil {
			t.Error(err)
		}
	})
	return &rig{l, t, program}
}

func (r *rig) api(machine string) fairleadv1connect.FairleadClient {
	c, err := api.Dial("unix:"+r.socket(machine), config.TLS{})
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *rig) socket(machine string) string { return filepath.Join(r.Dir(), machine+".sock") }

func (r *rig) status(machine string) *fairleadv1.GetStatusResponse {
	r.t.Helper()
	s, err := r.api(machine).GetStatus(r.t.Context(), connect.NewRequest(&fairleadv1.GetStatusRequest{}))
	if err != nil {
		r.t.Fatalf("status of %s: %v", machine, err)
	}
	return s.Msg
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// eventually waits for a condition.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// dial connects from the client's namespace. A thread whose namespace cannot
// be restored is thrown away.
func (r *rig) dial(address string) (net.Conn, error) {
	namespace, err := r.Machine("client")
	if err != nil {
		return nil, err
	}
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		fd, err := unix.Open("/run/netns/"+namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
			unix.Close(fd)
		}
		if err != nil {
			done <- result{nil, err}
			return
		}
		conn, err := (&net.Dialer{Timeout: patience}).Dial("tcp", address)
		done <- result{conn, err}
	}()
	d := <-done
	return d.conn, d.err
}

// talker is one connection that asks over and over who its server is.
type talker struct {
	answers atomic.Int64
	broken  atomic.Pointer[error]
}

// talk opens n connections to the VIP that go on until the test ends.
func (r *rig) talk(n int) []*talker {
	r.t.Helper()
	address := strings.TrimSuffix(strings.TrimPrefix(r.URL(), "http://"), "/") + ":80"
	ctx, stop := context.WithCancel(context.Background())
	r.t.Cleanup(stop)
	var talkers []*talker
	for range n {
		conn, err := r.dial(address)
		r.must(err)
		t := &talker{}
		talkers = append(talkers, t)
		go func() {
			defer conn.Close()
			if err := t.run(ctx, conn); err != nil && ctx.Err() == nil {
				t.broken.Store(&err)
			}
		}()
	}
	return talkers
}

func (t *talker) run(ctx context.Context, conn net.Conn) error {
	in := bufio.NewReader(conn)
	server := ""
	for ctx.Err() == nil {
		conn.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: vip\r\n\r\n"); err != nil {
			return err
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		if server != "" && string(body) != server {
			return fmt.Errorf("the connection moved from %s to %s", server, body)
		}
		server = string(body)
		t.answers.Add(1)
		time.Sleep(5 * time.Millisecond) // think time, so that two processors are enough
	}
	return nil
}

// flows waits until every connection has had a few more answers.
func (r *rig) flows(when string, talkers []*talker) {
	r.t.Helper()
	want := make([]int64, len(talkers))
	for i, t := range talkers {
		want[i] = t.answers.Load() + 5
	}
	for i, t := range talkers {
		r.eventually(fmt.Sprintf("%s: connection %d goes on", when, i), func() bool {
			if err := t.broken.Load(); err != nil {
				r.t.Fatalf("%s: connection %d broke: %v", when, i, *err)
			}
			return t.answers.Load() >= want[i]
		})
	}
}

// TestLife kills, stops and restarts daemons under traffic and changes what
// they do meanwhile.
func TestLife(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	talkers := r.talk(12)
	r.flows("at the start", talkers)

	machines := []string{"lb1", "lb2", "server1", "server2"}
	for _, m := range machines {
		r.must(r.KillDaemon(m))
	}
	r.flows("all daemons killed", talkers)
	talkers = append(talkers, r.talk(4)...)
	r.flows("new connections without daemons", talkers)
	for _, m := range machines {
		r.must(r.StartDaemon(t.Context(), m))
	}
	for _, m := range machines {
		if s := r.status(m); !s.Adopted || s.Clock.Source != "pinned" || s.AssignmentVersion != 1 {
			t.Errorf("%s after the restart: adopted %v, clock %s, version %d", m, s.Adopted, s.Clock.Source, s.AssignmentVersion)
		}
	}
	r.flows("all daemons restarted", talkers)

	r.verbs(talkers)

	// A daemon that was away catches up by itself.
	r.must(r.KillDaemon("lb2"))
	changed := r.curl("DrainServer", `{"vip": "web", "server": "`+r.Name+`-server2"}`, http.StatusOK)
	if !strings.Contains(fmt.Sprint(changed["unanswered"]), r.Name+"-lb2") {
		t.Errorf("a change while lb2 was dead does not name it: %v", changed)
	}
	r.must(r.StartDaemon(t.Context(), "lb2"))
	r.eventually("lb2 has lb1's version", func() bool {
		return r.status("lb2").AssignmentVersion == r.status("lb1").AssignmentVersion
	})
	r.flows("lb2 caught up", talkers)

	r.second()
	r.reload()
	r.flows("at the end", talkers)
	r.unload(talkers)
	if len(talkers) != 16 {
		t.Errorf("%d connections", len(talkers))
	}
}

// verbs drives the API as a script does, with curl and JSON.
func (r *rig) verbs(talkers []*talker) {
	r.t.Helper()
	web := `{"vip": "web", "server": "` + r.Name + `-server1"}`
	r.curl("DrainServer", web, http.StatusOK)
	for _, m := range []string{"lb1", "lb2", "server1", "server2"} {
		s := r.status(m)
		if s.AssignmentVersion != 2 {
			r.t.Errorf("%s has version %d after the drain", m, s.AssignmentVersion)
		}
		if m == "lb1" || m == "lb2" {
			if slot := s.Vips[0].Slots[0]; slot.State != fairleadv1.SlotState_SLOT_STATE_DRAINING || slot.TakesNew {
				r.t.Errorf("%s: slot 0 after the drain: %v", m, slot)
			}
		}
	}
	r.flows("drained", talkers)
	refusal := r.curl("RemoveServer", web, http.StatusBadRequest)
	if refusal["code"] != "failed_precondition" || !strings.Contains(fmt.Sprint(refusal["message"]), "live") {
		r.t.Errorf("removal under live connections: %v", refusal)
	}
	r.curl("UndrainServer", web, http.StatusOK)
	r.curl("RotateKey", `{}`, http.StatusOK)
	if s := r.status("server1"); len(s.Epochs) != 2 || s.StampEpoch != s.Epochs[1] {
		r.t.Errorf("after the rotation: epochs %v, stamped under %d", s.Epochs, s.StampEpoch)
	}
	r.flows("key rotated", talkers)
	missing := r.curl("DrainServer", `{"vip": "web", "server": "nobody"}`, http.StatusNotFound)
	if missing["code"] != "not_found" {
		r.t.Errorf("drain of nobody: %v", missing)
	}
}

// curl calls the controller's API without any client of ours and returns the answer.
func (r *rig) curl(method, body string, want int) map[string]any {
	r.t.Helper()
	out, err := exec.CommandContext(r.t.Context(), "curl", "-sS", "--unix-socket", r.socket("ctl1-api"),
		"-H", "Content-Type: application/json", "-d", body, "-w", "\n%{http_code}",
		"http://fairlead/fairlead.v1.Control/"+method).Output()
	r.must(err)
	text, code, _ := strings.Cut(string(out), "\n")
	if code != fmt.Sprint(want) {
		r.t.Fatalf("%s: HTTP status %s, want %d: %s", method, code, want, text)
	}
	var answer map[string]any
	r.must(json.Unmarshal([]byte(text), &answer))
	return answer
}

// second: two daemons of one name do not run, and the first does not notice.
func (r *rig) second() {
	r.t.Helper()
	namespace, err := r.Machine("lb1")
	r.must(err)
	var stderr bytes.Buffer
	cmd := exec.CommandContext(r.t.Context(), "nsenter", "--net=/run/netns/"+namespace, r.program, "lb", "-f", r.ConfigPath(),
		"--name", r.Name+"-lb1", "--state-dir", filepath.Join(r.Dir(), "state"))
	cmd.Stderr = &stderr
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(stderr.String(), "runs already") {
		r.t.Errorf("a second daemon of the same name: %v, %s", err, stderr.String())
	}
	r.status("lb1")
}

// reload: SIGHUP names what of the machine's own file takes a restart; all else the store
// has.
func (r *rig) reload() {
	r.t.Helper()
	file, err := os.ReadFile(r.ConfigPath())
	r.must(err)
	r.must(os.WriteFile(r.ConfigPath(), append(bytes.Replace(file, []byte("policy: rr"), []byte("policy: p2c"), 1), "tls: {ca: /ca, cert: /cert, key: /key}\n"...), 0o600))
	pid, err := os.ReadFile(filepath.Join(r.Dir(), "state", r.Name+"-lb1", "lock"))
	r.must(err)
	if out, err := exec.Command("kill", "-HUP", strings.TrimSpace(string(pid))).CombinedOutput(); err != nil {
		r.t.Fatalf("kill -HUP: %v: %s", err, out)
	}
	r.eventually("a warning of tls, and of no policy", func() bool {
		warnings := strings.Join(r.status("lb1").Warnings, "\n")
		return strings.Contains(warnings, "tls changed in") && !strings.Contains(warnings, "run fairlead plan to see")
	})
	r.must(os.WriteFile(r.ConfigPath(), file, 0o600))
}

// unload: a stopped daemon leaves its programs at work until they are taken
// out; a running one's are not taken out.
func (r *rig) unload(talkers []*talker) {
	r.t.Helper()
	name := r.Name + "-lb2"
	pins := r.status("lb2").PinDir
	if out, err := exec.Command(r.program, "unload", name).CombinedOutput(); err == nil || !strings.Contains(string(out), "in use") {
		r.t.Errorf("unload beside the running daemon: %v: %s", err, out)
	}
	pid, err := os.ReadFile(filepath.Join(r.Dir(), "state", name, "lock"))
	r.must(err)
	if out, err := exec.Command("kill", "-TERM", strings.TrimSpace(string(pid))).CombinedOutput(); err != nil {
		r.t.Fatalf("kill -TERM: %v: %s", err, out)
	}
	r.eventually("the daemon is gone and its socket with it", func() bool {
		_, err := os.Stat(r.socket("lb2"))
		return os.IsNotExist(err) && exec.Command("kill", "-0", strings.TrimSpace(string(pid))).Run() != nil
	})
	r.flows("lb2 stopped", talkers)
	r.must(r.StartDaemon(r.t.Context(), "lb2"))
	r.flows("lb2 started again", talkers)
	r.must(r.KillDaemon("server2"))
	if _, err := os.Stat(filepath.Join(pins, "programs", "lb")); err != nil {
		r.t.Errorf("pins: %v", err)
	}
	r.must(r.StartDaemon(r.t.Context(), "server2"))
	r.must(r.KillDaemon("lb2"))
	// The router goes on to lb2, whose kernel now passes what it gets: so
	// this comes last.
	if out, err := exec.Command(r.program, "unload", name).CombinedOutput(); err != nil {
		r.t.Errorf("unload: %v: %s", err, out)
	}
	if _, err := os.Stat(pins); !os.IsNotExist(err) {
		r.t.Errorf("%s after unload: %v", pins, err)
	}
}

// TestKilledWhileApplying kills a balancer's daemon inside an application:
// after the pin says so and before it is in force. What is on disk is whole and not
// newer than that, and the next daemon ends up where the others are.
func TestKilledWhileApplying(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	talkers := r.talk(8)
	verb := []string{"DrainServer", "UndrainServer"}
	path := filepath.Join(r.Dir(), "state", r.Name+"-lb1", "assignment.json")
	pin := filepath.Join(r.status("lb1").PinDir, "force")
	for round, inside := 0, 0; inside < 3; round++ {
		if round == 12 {
			t.Fatalf("only %d of %d kills fell inside an application", inside, round)
		}
		before, err := os.Readlink(pin)
		r.must(err)
		changing := make(chan error, 1)
		go func() {
			out, err := exec.Command("curl", "-sS", "--unix-socket", r.socket("ctl1-api"), "-H", "Content-Type: application/json",
				"-d", `{"vip": "web", "server": "`+r.Name+`-server1", "force": true}`,
				"http://fairlead/fairlead.v1.Control/"+verb[round%2]).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			changing <- err
		}()
		// The new pin stands there: the maps come next.
		var pinned uint64
		deadline := time.Now().Add(patience)
		for {
			if now, err := os.Readlink(pin); err == nil && now != before {
				_, err = fmt.Sscanf(now, "%d-", &pinned)
				r.must(err)
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the change does not reach lb1's pin")
			}
		}
		r.must(r.KillDaemon("lb1"))
		r.must(<-changing)
		data, err := os.ReadFile(path)
		r.must(err)
		left, err := controller.Decode(data)
		if err != nil || left.Version > pinned || left.Version+1 < pinned {
			t.Fatalf("round %d: the killed daemon left version %d on disk, and pinned %d: %v", round, left.Version, pinned, err)
		}
		log, err := os.ReadFile(filepath.Join(r.Dir(), "lb1.log"))
		r.must(err)
		if !strings.Contains(string(log), fmt.Sprintf("msg=\"assignment in force\" name=%s-lb1 version=%d ", r.Name, pinned)) {
			inside++
		}
		r.flows(fmt.Sprintf("round %d, killed", round), talkers)
		r.must(r.StartDaemon(t.Context(), "lb1"))
		r.eventually("lb1 has the others' version", func() bool {
			return r.status("lb1").AssignmentVersion == r.status("lb2").AssignmentVersion
		})
		r.flows(fmt.Sprintf("round %d", round), talkers)
	}
}
