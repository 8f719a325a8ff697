package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/cmd/built"
	"github.com/fairlead/fairlead/cmd/fairlead/first"
)

// What package first does comes before the packages that it is for, and the collector
// has not run before main.
func TestFirst(t *testing.T) {
	cmd := exec.Command(built.Fairlead(t), "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1,gctrace=1")
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		t.Fatal(err, said.String())
	}
	var before []string // packages of etcd's server
	at := -1
	for lines := bufio.NewScanner(&said); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) > 1 && fields[0] == "init" && strings.HasSuffix(fields[1], "cmd/fairlead/first"):
			at = len(before)
		case len(fields) > 1 && fields[0] == "init" && strings.HasPrefix(fields[1], "go.etcd.io/etcd/server/"):
			before = append(before, fields[1])
		case len(fields) > 0 && fields[0] == "gc":
			t.Error(lines.Text())
		}
	}
	if at < 0 || len(before) == at {
		t.Fatalf("package first was initialised behind all of %q", before)
	}
	for _, p := range before[:at] {
		if !strings.HasSuffix(p, "pb") { // messages have no metrics
			t.Errorf("package first was initialised behind %s", p)
		}
	}
}

// A controller's etcd has its metrics all the same.
func TestFirstMetrics(t *testing.T) {
	first.Metrics()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "etcd_") {
			return
		}
	}
	t.Errorf("none of %d metrics is etcd's", len(families))
}
