package paths

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/daemontest"
	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/topology"
)

// TestPathsDisk: if the disk refuses, no flow is left that nobody can release.
func TestPathsDisk(t *testing.T) {
	f, err := topology.Read(serveFile(t, t.TempDir(), pathsFile))
	if err != nil {
		t.Fatal(err)
	}
	s, err := newService(f)
	if err != nil {
		t.Fatal(err)
	}
	var disk error
	var kept paths.State
	s.keep = func(state paths.State) error {
		if disk == nil {
			kept = state
		}
		return disk
	}
	place := func() (*fairleadv1.PlacedFlow, error) {
		resp, err := s.PlaceFlow(t.Context(), connect.NewRequest(&fairleadv1.PlaceFlowRequest{From: "h1", To: "h2"}))
		if err != nil {
			return nil, err
		}
		return resp.Msg, nil
	}
	first, err := place()
	if err != nil {
		t.Fatal(err)
	}
	disk = errors.New("no space left on device")
	if _, err := place(); connect.CodeOf(err) != connect.CodeInternal || !strings.Contains(err.Error(), "nothing was placed") {
		t.Error(err)
	}
	if _, err := s.ReleaseFlow(t.Context(), connect.NewRequest(&fairleadv1.ReleaseFlowRequest{Id: first.Id})); err == nil || !strings.Contains(err.Error(), "in force") {
		t.Error(err)
	}
	if left := s.view().scheduler.Placed(); len(left) != 0 || len(kept.Flows) != 1 {
		t.Errorf("placed: %v, on disk: %v", left, kept.Flows)
	}
	disk = nil
	if third, err := place(); err != nil || len(kept.Flows) != 1 || kept.Flows[0].ID != third.Id {
		t.Errorf("%v, %v, on disk: %v", third, err, kept.Flows)
	}
}

// TestPathsFullDisk: the service starts and answers, and leaves nothing half
// written from before.
func TestPathsFullDisk(t *testing.T) {
	folder := t.TempDir()
	f, err := topology.Read(serveFile(t, folder, pathsFile))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	d := newServer(Options{Log: log})
	if d.State, err = daemon.OpenState(folder, "gone", unsaved, log); err != nil {
		t.Fatal(err)
	}
	defer d.State.Close()
	// A folder that is not there takes no files, either.
	if err := os.RemoveAll(filepath.Join(folder, "gone")); err != nil {
		t.Fatal(err)
	}
	if d.service, err = newService(f); err != nil {
		t.Fatal(err)
	}
	if err := d.begin(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.service.PlaceFlow(t.Context(), connect.NewRequest(&fairleadv1.PlaceFlowRequest{From: "h1", To: "h2"})); connect.CodeOf(err) != connect.CodeInternal {
		t.Error(err)
	}
	half := filepath.Join(folder, "state", stateName, ".flows.json-123")
	if err := os.MkdirAll(filepath.Dir(half), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(half, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := daemon.OpenState(filepath.Join(folder, "state"), stateName, unsaved, log)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := os.Stat(half); !errors.Is(err, fs.ErrNotExist) {
		t.Error("what was half written is there: ", err)
	}
}

// TestPathsEndsWhole: a service that cannot open all that it is told to serves
// nothing.
func TestPathsEndsWhole(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	folder := t.TempDir()
	file := serveFile(t, folder, strings.Replace(pathsFile, `paths: {api: "unix:SOCKET"}`, `paths: {api: "unix:SOCKET", metrics: "`+taken.Addr().String()+`"}`, 1))
	err = Run(t.Context(), Options{File: file, StateDir: filepath.Join(folder, "state"), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Error(err)
	}
	if c, err := net.Dial("unix", filepath.Join(folder, "s")); err == nil {
		c.Close()
		t.Error("the API still answers")
	}
}

// A disk that is full from the first moment on: the service answers and says so,
// places nothing, and goes on once there is room.
func TestPathsFromFullDisk(t *testing.T) {
	base := filepath.Join(t.TempDir(), "state")
	daemontest.SmallDisk(t, base)
	if err := os.Mkdir(filepath.Join(base, stateName), 0o700); err != nil {
		t.Fatal(err)
	}
	empty := daemontest.Fill(t, base)
	f, err := topology.Read(serveFile(t, t.TempDir(), pathsFile))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	d := newServer(Options{Log: log})
	if d.State, err = daemon.OpenState(base, stateName, unsaved, log); err != nil {
		t.Fatal(err)
	}
	defer d.State.Close()
	if d.service, err = newService(f); err != nil {
		t.Fatal(err)
	}
	if err := d.begin(); err != nil {
		t.Fatal(err)
	}
	warned := func() bool {
		resp, err := d.service.GetFabric(t.Context(), connect.NewRequest(&fairleadv1.GetFabricRequest{}))
		return err == nil && strings.Contains(strings.Join(resp.Msg.Warnings, "\n"), "placed flows are not on disk")
	}
	place := func() error {
		_, err := d.service.PlaceFlow(t.Context(), connect.NewRequest(&fairleadv1.PlaceFlowRequest{From: "h1", To: "h2"}))
		return err
	}
	if err := place(); connect.CodeOf(err) != connect.CodeInternal || !warned() {
		t.Errorf("placed on a full disk: %v, warned %v", err, warned())
	}
	empty()
	if d.State.Retry(); warned() {
		t.Error("it warns still")
	}
	if err := place(); err != nil {
		t.Error(err)
	}
}
