package daemon

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/kernel/swtch"
)

func (d *deployment) stopAll() { d.stop(slices.Collect(maps.Keys(d.stops))...) }

// stop stops daemons at once: each takes a second to let go of its connections.
func (d *deployment) stop(names ...string) {
	var wg sync.WaitGroup
	for _, name := range names {
		wg.Go(d.stops[name])
	}
	wg.Wait()
}

// smallDisk is a file system of 128 KB at dir, for root alone.
func smallDisk(t *testing.T, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("a disk that is full is a tmpfs, which takes root: run the tests with sudo")
	}
	if err := errors.Join(os.MkdirAll(dir, 0o700), unix.Mount("fairlead-test", dir, "tmpfs", 0, "size=128k,nr_inodes=64")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// fill leaves no room on the disk of dir, and returns what makes some.
func fill(t *testing.T, dir string) (empty func()) {
	t.Helper()
	ballast := filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if f.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(ballast); err != nil {
			t.Error(err)
		}
	}
}

// A disk that is full, or read-only, stops no daemon: each starts from what is
// there; what peers have goes into force and is said not to be on disk, until it
// is; what somebody wants is refused, and nothing is changed by it.
func TestFullDisk(t *testing.T) {
	defer func(interval time.Duration) { peerInterval = interval }(peerInterval)
	peerInterval = 200 * time.Millisecond
	d := newDeployment(t)
	defer d.stopAll()
	disk := filepath.Join(d.dir, "state", "lb1")
	smallDisk(t, disk)
	d.planes["lb1"] = &fakePlane{wake: make(chan struct{}, 1), pins: t.TempDir()}
	for name, role := range map[string]Role{"s1": RoleHost, "s2": RoleHost, "lb1": RoleBalancer, "lb2": RoleBalancer} {
		d.start(role, name)
	}
	// Nothing new to write.
	d.stops["lb1"]()
	empty := fill(t, disk)
	d.start(RoleBalancer, "lb1")
	if d.warned("lb1", "not on disk") {
		t.Errorf("all is on disk: %q", d.status("lb1").Warnings)
	}
	// Somebody wants a change.
	held, err := d.client("lb1").GetAssignment(t.Context(), connect.NewRequest(&fairleadv1.GetAssignmentRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	next, err := controller.Decode(held.Msg.Assignment)
	if err != nil {
		t.Fatal(err)
	}
	next.Version++
	_, err = d.client("lb1").SetAssignment(t.Context(), connect.NewRequest(&fairleadv1.SetAssignmentRequest{Assignment: next.Encode(), ExpectedVersion: 1}))
	if err == nil || !strings.Contains(err.Error(), "save assignment.json") || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("a change that lb1 cannot keep: %v", err)
	}
	if s := d.status("lb1"); s.AssignmentVersion != 1 || d.planes["lb1"].applied.Version != 1 {
		t.Errorf("version %d after a change that was refused", s.AssignmentVersion)
	}
	// It was away meanwhile, and catches up.
	d.stops["lb1"]()
	drain := &fairleadv1.DrainServerRequest{Vip: "web", Server: "s1", Force: true}
	if _, err := d.client("lb2").DrainServer(t.Context(), connect.NewRequest(drain)); err != nil {
		t.Fatal(err)
	}
	d.start(RoleBalancer, "lb1")
	version := d.status("lb2").AssignmentVersion
	b, _ := d.cfg.Balancer("lb1")
	unsaved := func() bool {
		resp, err := http.Get("http://" + *b.Metrics + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return err == nil && !strings.Contains(string(body), "fairlead_state_unsaved_files 0")
	}
	if s := d.status("lb1"); s.AssignmentVersion != version || version < 2 || !d.warned("lb1", "is not on disk") || !unsaved() {
		t.Errorf("caught up: version %d of %d, warnings %q", s.AssignmentVersion, version, s.Warnings)
	}
	onDisk := func() uint64 {
		a, err := ReadAssignment(filepath.Join(d.dir, "state"), "lb1")
		if err != nil || a == nil {
			return 0
		}
		return a.Version
	}
	if v := onDisk(); v != 1 {
		t.Errorf("on a full disk is version %d", v)
	}
	// Killed now, with nobody to ask: not back to version 1.
	d.stopAll()
	if err := d.end(RoleBalancer, "lb1"); err == nil || !strings.Contains(err.Error(), "version 1 (from disk)") {
		t.Errorf("older than what is in force: %v", err)
	}
	d.start(RoleHost, "s2")
	d.start(RoleBalancer, "lb1")
	empty()
	d.eventually("it is on disk, and nobody warns", func() bool { return onDisk() == version && !d.warned("lb1", "is not on disk") && !unsaved() })
	// The kernel has made the disk read-only.
	d.stops["lb1"]()
	if err := unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	d.start(RoleBalancer, "lb1")
	if s := d.status("lb1"); s.AssignmentVersion != version || d.warned("lb1", "is not on disk") {
		t.Errorf("from a read-only disk: version %d, warnings %q", s.AssignmentVersion, s.Warnings)
	}
	if _, err := openState(filepath.Join(d.dir, "state"), "lb1", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("a second daemon on a read-only disk: %v", err)
	}
}

// A file that cannot be read is not taken for damaged: it stays where it is, and
// the daemon does not go on without it.
func TestUnreadableState(t *testing.T) {
	s, err := openState(t.TempDir(), "lb1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	a, err := controller.First(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.save(a.Encode(), true); err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := unix.Rlimit{Cur: 0, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_, err = s.load()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, syscall.EMFILE) || strings.Contains(err.Error(), "move the file away") {
		t.Errorf("without descriptors: %v", err)
	}
	if b, err := s.load(); err != nil || b == nil || len(s.warnings()) != 0 {
		t.Errorf("with them again: %v, %v, warnings %q", b, err, s.warnings())
	}
}

// A disk that fails when the new file has its name already: the change is refused,
// and what is in force is on disk again as soon as that takes it.
func TestRefusedNotOnDisk(t *testing.T) {
	works := syncDir
	var broken atomic.Bool
	syncDir = func(path string) error {
		if broken.Load() {
			return syscall.EIO
		}
		return works(path)
	}
	defer func() { syncDir = works }()
	d := newDeployment(t)
	defer d.stopAll()
	d.start(RoleBalancer, "lb1")
	held, err := d.client("lb1").GetAssignment(t.Context(), connect.NewRequest(&fairleadv1.GetAssignmentRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	next, err := controller.Decode(held.Msg.Assignment)
	if err != nil {
		t.Fatal(err)
	}
	next.Version++
	broken.Store(true)
	_, err = d.client("lb1").SetAssignment(t.Context(), connect.NewRequest(&fairleadv1.SetAssignmentRequest{Assignment: next.Encode(), ExpectedVersion: 1}))
	if err == nil || !strings.Contains(err.Error(), "save assignment.json") || d.status("lb1").AssignmentVersion != 1 {
		t.Errorf("a change that the disk may have lost: %v, version %d", err, d.status("lb1").AssignmentVersion)
	}
	broken.Store(false)
	d.eventually("version 1 is on disk, and nobody warns", func() bool {
		a, err := ReadAssignment(filepath.Join(d.dir, "state"), "lb1")
		return err == nil && a.Version == 1 && !d.warned("lb1", "is not on disk")
	})
}

// The other daemons' disks, full from the first moment on.
func TestFullDiskOfOthers(t *testing.T) {
	base := filepath.Join(t.TempDir(), "state")
	smallDisk(t, base)
	for _, name := range []string{"h1", "sw1", pathsName} {
		if err := os.Mkdir(filepath.Join(base, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	empty := fill(t, base)
	open := func(name string) *stateDir {
		t.Helper()
		s, err := openState(base, name, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Cleanup(func() { s.close() })
		return s
	}
	// An agent: what it keeps last is what is written once there is room.
	host := open("h1")
	for i := range uint64(3) {
		a, err := controller.First(testConfig(t))
		if err != nil {
			t.Fatal(err)
		}
		a.Version = i + 1
		if err := host.save(a.Encode(), false); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("kept on a full disk: %v", err)
		}
	}
	// A switch that locks itself is locked; one that is told to drain refuses.
	sw := open("sw1")
	if err := keepLock(sw, &swtch.Lock{Reason: "a test"}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a lock on a full disk: %v", err)
	}
	// The path service answers, and places nothing.
	f, err := topology.Read(serveFile(t, t.TempDir(), pathsFile))
	if err != nil {
		t.Fatal(err)
	}
	paths := &pathsDaemon{log: slog.New(slog.DiscardHandler), fabric: f, state: open(pathsName)}
	if err := paths.begin(); err != nil {
		t.Fatal(err)
	}
	warned := func() bool {
		resp, err := paths.service.GetFabric(t.Context(), connect.NewRequest(&fairleadv1.GetFabricRequest{}))
		return err == nil && strings.Contains(strings.Join(resp.Msg.Warnings, "\n"), "placed flows are not on disk")
	}
	place := func() error {
		_, err := paths.service.PlaceFlow(t.Context(), connect.NewRequest(&fairleadv1.PlaceFlowRequest{From: "h1", To: "h2"}))
		return err
	}
	if err := place(); connect.CodeOf(err) != connect.CodeInternal || !warned() {
		t.Errorf("placed on a full disk: %v, warned %v", err, warned())
	}

	empty()
	for _, s := range []*stateDir{host, sw} {
		for name := range s.unsaved {
			s.retry(name)
		}
		if waiting, _ := s.counts(); waiting != 0 || len(s.warnings()) != 0 {
			t.Errorf("%s: %d files wait, %q", s.path, waiting, s.warnings())
		}
	}
	if a, err := host.load(); err != nil || a.Version != 3 {
		t.Errorf("the agent's: %v, %v", a, err)
	}
	if l, err := readLock(sw); err != nil || l == nil || l.Reason != "a test" {
		t.Errorf("the switch's: %v, %v", l, err)
	}
	if paths.service.retry(); warned() {
		t.Error("the path service warns still")
	}
	if err := place(); err != nil {
		t.Error(err)
	}
}
