package daemon

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
	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/topology"
)

// TestPathsDisk: if the disk refuses, no flow is left that nobody can release.
func TestPathsDisk(t *testing.T) {
	f, err := topology.Read(serveFile(t, t.TempDir(), pathsFile))
	if err != nil {
		t.Fatal(err)
	}
	s, err := newPathService(f)
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
	// A folder that is not there takes no files, either.
	d := &pathsDaemon{log: slog.New(slog.DiscardHandler), fabric: f, state: &stateDir{path: filepath.Join(folder, "gone")}}
	if err := d.begin(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.service.PlaceFlow(t.Context(), connect.NewRequest(&fairleadv1.PlaceFlowRequest{From: "h1", To: "h2"})); connect.CodeOf(err) != connect.CodeInternal {
		t.Error(err)
	}
	half := filepath.Join(folder, "state", pathsName, ".flows.json-123")
	if err := os.MkdirAll(filepath.Dir(half), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(half, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := openState(filepath.Join(folder, "state"), pathsName, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
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
	err = RunPaths(t.Context(), PathsOptions{File: file, StateDir: filepath.Join(folder, "state"), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Error(err)
	}
	if c, err := net.Dial("unix", filepath.Join(folder, "s")); err == nil {
		c.Close()
		t.Error("the API still answers")
	}
}
