package paths_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/cmd/built"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon/daemontest"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/lab/fabrics"
	"github.com/fairlead/fairlead/lab/netspace"
)

// TestPathService has the service place flows in a fabric of namespaces whose
// routers run: each takes the path that it was given, what links carry is
// measured, and others are placed elsewhere. The service is killed between.
func TestPathService(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces need root: run the tests with sudo")
	}
	folder := t.TempDir()
	program := built.Fairlead(t)
	of, err := topology.LeafSpine(2, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range of.Links {
		of.Links[i].Capacity = 100e6
	}
	of.Service.API = "unix:" + filepath.Join(folder, "paths.sock")
	for i := range of.Nodes {
		of.Nodes[i].Addresses = nil
	}
	of.Selector.Key[0] = 1
	f, err := fabrics.Up(t.Context(), of, fabrics.Options{Name: fmt.Sprint("tserve", os.Getpid()), Program: program})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Down(); err != nil {
			t.Error(err)
		}
	})
	s := &serviceRig{t: t, Fabric: f, program: program, folder: folder}
	s.names = f.Topology().LinkNames()
	s.start()
	s.listen()

	var placed []*fairleadv1.PlacedFlow
	var spines []string
	for range 3 {
		p := s.place()
		placed = append(placed, p)
		spines = append(spines, p.Path.Hops[1].To)
	}
	slices.Sort(spines)
	if len(slices.Compact(spines)) != 3 {
		t.Fatalf("three flows over spines %v", spines)
	}
	s.kill()
	s.start()
	for _, p := range placed {
		s.takesItsPath(p)
	}

	// One of them sends all it can; the others end. Others avoid its link.
	busy := placed[1]
	stop := s.flood(busy.Flow)
	defer stop()
	s.until("what the busy link carries is measured", func() bool {
		return s.load(busy.Path.Hops[1]).Measured > 20e6
	})
	for _, p := range placed {
		if _, err := s.client.ReleaseFlow(t.Context(), connect.NewRequest(&fairleadv1.ReleaseFlowRequest{Id: p.Id})); err != nil {
			t.Fatal(err)
		}
	}
	s.until("the released flow's traffic counts as others'", func() bool {
		return s.load(busy.Path.Hops[1]).Background > 20e6
	})
	for range 2 {
		if p := s.place(); p.Path.Hops[1].Link == busy.Path.Hops[1].Link {
			t.Errorf("flow %d was placed on the busy link", p.Id)
		}
	}
	stop()
	s.until("the busy link is free again", func() bool { return s.load(busy.Path.Hops[1]).Measured < 1e6 })
	if p := s.place(); p.Path.Hops[1].Link != busy.Path.Hops[1].Link {
		t.Errorf("the free link was not used: %v", p.Path)
	}
}

// serviceRig is a fabric and its path service.
type serviceRig struct {
	*fabrics.Fabric
	t               *testing.T
	program, folder string
	names           []string // links'
	client          fairleadv1connect.PathsClient
	service         *exec.Cmd
}

// start runs the service and waits until it answers.
func (s *serviceRig) start() {
	s.t.Helper()
	s.service = exec.Command(s.program, "path", "serve", "-f", s.Path(), "--state-dir", filepath.Join(s.folder, "state"), "--measure", "200ms")
	s.service.Stderr = s.t.Output()
	if err := s.service.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.kill)
	var err error
	if s.client, err = api.DialPaths(s.Topology().Service.API, config.TLS{}); err != nil {
		s.t.Fatal(err)
	}
	s.until("the service answers", func() bool {
		_, err := s.client.ListFlows(s.t.Context(), connect.NewRequest(&fairleadv1.ListFlowsRequest{}))
		return err == nil
	})
}

// kill ends the service at once; it may be dead already.
func (s *serviceRig) kill() {
	if err := s.service.Process.Kill(); err == nil {
		s.service.Wait() //nolint:errcheck // it was killed
	} else if !errors.Is(err, os.ErrProcessDone) {
		s.t.Error(err)
	}
}

func (s *serviceRig) until(what string, is func() bool) {
	s.t.Helper()
	if !netspace.WaitFor(daemontest.Patience, is) {
		s.t.Fatalf("in vain: %s", what)
	}
}

func (s *serviceRig) host(name string) string { return s.Topology().Nodes[s.Node(name)].Name }

func (s *serviceRig) place() *fairleadv1.PlacedFlow {
	s.t.Helper()
	resp, err := s.client.PlaceFlow(s.t.Context(), connect.NewRequest(&fairleadv1.PlaceFlowRequest{From: s.host("host-0"), To: s.host("host-1"),
		Wanted: &fairleadv1.WantedFields{Protocol: "udp", DstPort: 7000}}))
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.Msg
}

func (s *serviceRig) load(h *fairleadv1.PathHop) *fairleadv1.LinkLoad {
	s.t.Helper()
	resp, err := s.client.GetFabric(s.t.Context(), connect.NewRequest(&fairleadv1.GetFabricRequest{}))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, l := range resp.Msg.Links {
		for _, d := range l.Loads {
			if l.Name == h.Link && d.From == h.From {
				return d
			}
		}
	}
	s.t.Fatalf("no link %s", h.Link)
	return nil
}

// takesItsPath sends packets of the flow and looks at the links that they pass.
func (s *serviceRig) takesItsPath(p *fairleadv1.PlacedFlow) {
	s.t.Helper()
	const packets, size = 50, 1000
	before := s.passed()
	c := s.dial(p.Flow)
	defer c.Close()
	for range packets {
		if _, err := c.Write(make([]byte, size)); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, h := range p.Path.Hops {
		link := slices.Index(s.names, h.Link)
		s.until(fmt.Sprintf("flow %d passes link %s", p.Id, h.Link), func() bool { return s.passed()[link]-before[link] >= packets*size })
	}
	on := map[int]bool{}
	for _, h := range p.Path.Hops {
		on[slices.Index(s.names, h.Link)] = true
	}
	for link, bytes := range s.passed() {
		if !on[link] && bytes-before[link] >= packets*size/2 {
			s.t.Errorf("flow %d: %d bytes passed link %s", p.Id, bytes-before[link], s.names[link])
		}
	}
}

// passed is each link's bytes, both directions together.
func (s *serviceRig) passed() []uint64 {
	s.t.Helper()
	out := make([]uint64, len(s.names))
	for i := range out {
		both, err := s.Passed(i)
		if err != nil {
			s.t.Fatal(err)
		}
		out[i] = both[0] + both[1]
	}
	return out
}

// listen takes what comes to host-1, so that no ICMP errors go back.
func (s *serviceRig) listen() {
	s.t.Helper()
	var c *net.UDPConn
	err := s.In("host-1", func() (err error) { c, err = net.ListenUDP("udp", &net.UDPAddr{Port: 7000}); return err })
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
}

// dial opens the flow at host-0.
func (s *serviceRig) dial(f *fairleadv1.FlowFields) (c *net.UDPConn) {
	s.t.Helper()
	err := s.In("host-0", func() (err error) {
		c, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(f.Src), uint16(f.SrcPort))),
			net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(f.Dst), uint16(f.DstPort))))
		return err
	})
	if err != nil {
		s.t.Fatalf("open %v: %v", f, err)
	}
	return c
}

// flood sends some 40 Mbit/s of the flow until stop is called.
func (s *serviceRig) flood(f *fairleadv1.FlowFields) (stop func()) {
	c := s.dial(f)
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer c.Close()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for range 20 {
				if _, err := c.Write(make([]byte, 1250)); err != nil {
					s.t.Error(err)
					return
				}
			}
		}
	}()
	return func() { cancel(); <-done }
}
