package trace

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/lb"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/scheme/model"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// The balancer stands on veth t0 of a namespace of its own; the servers'
// MAC addresses are permanent neighbours, so nobody need answer.

var testAssignment = &controller.Assignment{Version: 1, Keys: []controller.Key{{Epoch: 0, Secret: []byte("0123456789abcdef")}},
	HashKey: hash.Key{1, 2}, VIPs: []controller.VIP{
		testVIP(1, "web", "192.0.2.10", "tcp", "ipip", "10.78.0.11", "10.78.0.12", "10.78.0.13"),
		testVIP(2, "web6", "2001:db8::10", "tcp", "gue", "10.78.0.11", "10.78.0.12"),
		testVIP(3, "dns", "192.0.2.10", "udp", "l2", "10.78.0.13"),
		trackingVIP(4, "jet", "192.0.2.11", "table-hrw", "10.78.0.11", "10.78.0.12", "10.78.0.13"),
		trackingVIP(5, "anchor", "192.0.2.12", "anchor", "10.78.0.11", "10.78.0.12", "10.78.0.13"),
		trackingVIP(6, "full", "192.0.2.13", "maglev", "10.78.0.11", "10.78.0.12"),
		bucketVIP(7, "beamer", "192.0.2.14", "tcp", "ipip", "10.78.0.11", "10.78.0.12", "10.78.0.13"),
		bucketVIP(8, "quic", "192.0.2.14", "udp", "gue", "10.78.0.11", "10.78.0.12"),
	}}

// trackingVIP is one of schemes jet or full-ct; under jet the second server
// drains and the last is on standby.
func trackingVIP(id uint32, name, addr string, hash chash.Kind, servers ...string) controller.VIP {
	v := testVIP(id, name, addr, "tcp", "ipip", servers...)
	v.Scheme, v.Policy, v.Hash, v.Share = "jet", "hash", hash, true
	if name == "full" {
		v.Scheme, v.Share = "full-ct", false
		return v
	}
	if hash == "anchor" {
		v.Capacity = 16
	}
	v.Slots[1].State, v.Slots[2].State = controller.Draining, controller.Standby
	return v
}

func testVIP(id uint32, name, addr, proto string, forwarding vip.Forwarding, servers ...string) controller.VIP {
	v := controller.VIP{
		ID:       id,
		Settings: vip.Settings{Name: name, Address: netip.MustParseAddr(addr), Port: map[string]uint16{"tcp": 80, "udp": 53}[proto], Protocol: proto, Scheme: map[string]vip.Scheme{"tcp": "cheetah", "udp": "stateless"}[proto], Policy: map[string]vip.Policy{"tcp": "rr", "udp": "hash"}[proto], Affinity: "connection", Forwarding: forwarding, CookieBits: 12, Fragments: "drop", ICMPEcho: true},
	}
	for i, s := range servers {
		v.Slots = append(v.Slots, controller.Slot{Number: uint16(i), Server: fmt.Sprint(name, "-", i+1), Address: netip.MustParseAddr(s), Weight: 1, State: controller.Active})
	}
	return v
}

// loaded loads a balancer and returns where it is pinned.
func loaded(t *testing.T) (pinDir string, balancer *lb.LB) {
	t.Helper()
	return loadedWith(t, testAssignment, func(*lb.Options) {})
}

func loadedWith(t *testing.T, a *controller.Assignment, change func(*lb.Options)) (pinDir string, balancer *lb.LB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test loads programs into the kernel: run it as root")
	}
	pinDir = filepath.Join(filepath.Dir(kernel.Dir("x")), "fl-trace-"+strings.ToLower(t.Name()))
	_ = lb.Unload(pinDir) // of a run that was killed
	t.Cleanup(func() {
		if balancer != nil {
			balancer.Close()
		}
		if err := lb.Unload(pinDir); err != nil {
			t.Error(err)
		}
	})
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread goes with the goroutine
		failed <- func() (err error) {
			if _, err = netns.New(); err != nil {
				return err
			}
			if err = linkUp(); err != nil {
				return err
			}
			o := lb.Options{Name: "test", PinDir: pinDir, Interfaces: []string{"t0"},
				Source4: netip.MustParsePrefix("10.88.0.0/16"), Source6: netip.MustParsePrefix("fd88::/64"),
				Limits: config.Limits{ServerLines: 256, TableEntries: 1 << 18, Flows: 1024, Seats: 1024, RateSources: 256, AskRate: 100}}
			change(&o)
			balancer, err = lb.Open(o, slog.New(slog.DiscardHandler))
			return err
		}()
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	if err := balancer.SetClock(func() uint32 { return uint32(time.Now().UnixMilli()) }); err != nil {
		t.Fatal(err)
	}
	if _, err := balancer.Apply(a, nil); err != nil {
		t.Fatal(err)
	}
	return pinDir, balancer
}

func linkUp() error {
	// The kernel shall send nothing of its own that would be counted.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0); err != nil {
		return err
	}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "t0"}, PeerName: "t1"}); err != nil {
		return err
	}
	for _, name := range []string{"t0", "t1"} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
		if name == "t1" {
			continue
		}
		addr, _ := netlink.ParseAddr("10.78.0.2/24")
		if err := netlink.AddrAdd(l, addr); err != nil {
			return err
		}
		for i := byte(11); i <= 13; i++ {
			if err := netlink.NeighAdd(&netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT,
				IP: net.IPv4(10, 78, 0, i), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 1, i}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// quiet is must without the text.
func (t *Tracer) quiet(test *testing.T, text string) *Story {
	test.Helper()
	spec, err := ParseSpec(text)
	if err != nil {
		test.Fatal(err)
	}
	story, err := t.Spec(spec)
	if err != nil {
		test.Fatalf("%s: %v", text, err)
	}
	if story.Disagreement != "" {
		test.Fatalf("%s: %s", text, story.Disagreement)
	}
	return story
}

func (t *Tracer) must(test *testing.T, text string) *Story {
	test.Helper()
	spec, err := ParseSpec(text)
	if err != nil {
		test.Fatal(err)
	}
	story, err := t.Spec(spec)
	if err != nil {
		test.Fatalf("%s: %v", text, err)
	}
	if o := story.Outer; o != nil && !netip.MustParsePrefix("10.88.0.0/16").Contains(netip.MustParseAddr(o.Src)) {
		test.Errorf("%s: outer source %s", text, o.Src)
	}
	var b strings.Builder
	if err := story.Text(&b); err != nil {
		test.Fatal(err)
	}
	test.Logf("%s\n%s", text, b.String())
	if story.Disagreement != "" || !story.Program.Same {
		test.Errorf("%s: %+v", text, story)
	}
	return story
}

// Every kind of story, and nothing of the loaded balancer changes.
func TestStories(t *testing.T) {
	pinDir, balancer := loaded(t)
	tracer, err := Open(pinDir, testAssignment)
	if err != nil {
		t.Fatal(err)
	}
	defer tracer.Close()
	before, err := balancer.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		packet, reason, server, outer string
	}{
		{"tcp 203.0.113.7:4711 > 192.0.2.10:80 syn", "FORWARD_NEW", "any", "10.78.0.1"},
		{"tcp 203.0.113.7:4711 > 192.0.2.10:80 [ack] cookie-of=web-2 age=60", "KNOWN", "web-2", "10.78.0.12"},
		{"tcp 203.0.113.7:4711 > 192.0.2.10:80 fin|ack cookie-of=10.78.0.13", "KNOWN", "web-3", "10.78.0.13"},
		{"tcp 203.0.113.7:4711 > 192.0.2.10:80 cookie-of=9", "FORWARD_BAD_COOKIE", "any", "10.78.0.1"},
		{"tcp [2001:db8:7::1]:4711 > [2001:db8::10]:80 cookie-of=web6-1", "KNOWN", "web6-1", "10.78.0.11"},
		{"tcp 203.0.113.7:4711 > 192.0.2.10:80 rst no-ts", "ASK_RST", "", ""},
		{"tcp 203.0.113.7:4712 > 192.0.2.10:80 syn no-ts", "FORWARD_NO_TIMESTAMP", "any", "10.78.0.1"},
		{"udp 203.0.113.7:4711 > 192.0.2.10:53", "FORWARD_STATELESS", "dns-1", ""},
		{"udp 203.0.113.7:4711 > 192.0.2.10:54", "PASS_VIP_OTHER", "", ""},
		{"tcp 203.0.113.7:4711 > 192.0.2.99:80 syn", "PASS_NO_VIP", "", ""},
		{"tcp 203.0.113.7:4711 > 192.0.2.10:80 frag=80", "DROP_FRAGMENT", "", ""},
		{"tcp 203.0.113.7:4711 > 192.0.2.10:80 options=05000000", "DROP_MALFORMED_OPTION", "", ""},
		{"tcp 203.0.113.7:4711 > 192.0.2.10:80 cookie-of=web-1 len=1448 df", "REPLY_TOO_BIG", "web-1", ""},
		{"tcp 203.0.113.7:4711 > 192.0.2.10:80 cookie-of=web-1 len=1448", "DROP_TOO_BIG", "web-1", ""},
		{"icmp 203.0.113.7 > 192.0.2.10 echo", "REPLY_ECHO", "", ""},
		{"icmp 198.51.100.1 > 192.0.2.10 too-big mtu=1400 quoting tcp 192.0.2.10:80 > 203.0.113.7:4711 cookie-of=web-2", "FORWARD_ICMP", "web-2", "10.78.0.12"},
		{"icmp 198.51.100.1 > 192.0.2.10 unreachable quote=28 quoting tcp 192.0.2.10:80 > 203.0.113.7:4711 cookie-of=web-2", "ASK_ICMP", "", ""},
	} {
		s := tracer.must(t, c.packet)
		if s.Verdict.Reason != c.reason {
			t.Errorf("%s: %s, want %s", c.packet, s.Verdict.Reason, c.reason)
		}
		if (s.Server != nil) != (c.server != "") || s.Server != nil && c.server != "any" && s.Server.Name != c.server {
			t.Errorf("%s: server %+v, want %s", c.packet, s.Server, c.server)
		}
		if (s.Outer != nil) != (c.outer != "") || s.Outer != nil && !strings.HasPrefix(s.Outer.Dst, c.outer) {
			t.Errorf("%s: outer %+v, want %s", c.packet, s.Outer, c.outer)
		}
	}
	after, err := balancer.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(before, after) {
		t.Errorf("tracing changed the balancer's counters:\nbefore %+v\nafter  %+v", before, after)
	}
}

// What the flow table and the hash have to do with a packet is told, in the
// words of Why.
func TestTrackingStories(t *testing.T) {
	pinDir, _ := loaded(t)
	tracer, err := Open(pinDir, testAssignment)
	if err != nil {
		t.Fatal(err)
	}
	defer tracer.Close()
	for _, vip := range []string{"192.0.2.11:80", "192.0.2.12:80"} {
		whys := map[string]bool{"the entry names the server": false, "no change that may come moves it: it need not be remembered": false,
			"it must be remembered: new connections go to slot 0, earlier ones are held by slot 1":                             false,
			"it must be remembered: a server of the horizon would take it":                                                     false,
			"the end of a connection makes no entry":                                                                           false,
			"a connection before this one ended at the entry's server, which takes new ones: it opens there":                   false,
			"the entry names the server, which takes no new connections: but the one before may be alive, and this one forged": false,
			"the entry is not followed, as its server takes no new connections; a new one takes its place":                     false}
		left := len(whys)
		for port := 1024; port < 1124 && left > 0; port++ {
			flow := fmt.Sprintf("tcp 203.0.113.7:%d > %s no-ts", port, vip)
			// Of a connection from before the drain, which nobody tracked.
			old := tracer.quiet(t, flow+" psh")
			if old.Flow.Before != nil || old.Hash.By != "held" || old.Server.Slot != old.Hash.Held || old.Flow.Made != old.Hash.Track {
				t.Fatalf("%s: %+v %+v", flow, old.Flow, old.Hash)
			}
			if old.Hash.Held != old.Hash.Slot && !strings.Contains(old.Flow.Why, "are held by slot 1") {
				t.Fatalf("%s: %s", flow, old.Flow.Why)
			}
			confirmed := port%2 == 0
			if confirmed {
				tracer.quiet(t, flow+" ack") // it goes on
			}
			fin := tracer.quiet(t, flow+" fin")
			if fin.Flow.Made || fin.Flow.Followed != old.Flow.Made || fin.Server.Slot != old.Server.Slot {
				t.Fatalf("%s: %+v", flow, fin.Flow)
			}
			// The ports are used again: with the server of before, unless
			// that one drains and nothing confirmed its entry.
			syn, stays := tracer.quiet(t, flow+" syn"), old.Flow.Made && (old.Server.Slot == 0 || confirmed)
			to, state := 0, "new"
			if stays {
				to = old.Server.Slot
			}
			if confirmed {
				state = "fading"
			}
			if syn.Verdict.Reason != "FORWARD_NEW" || syn.Server.Slot != to || syn.Flow.Followed != stays || syn.Flow.Shared {
				t.Fatalf("%s: %+v %+v", flow, syn.Flow, syn.Hash)
			}
			if stays && syn.Flow.After.State != state || !stays && (syn.Hash.By != "slot" || syn.Flow.Made != syn.Hash.Track) {
				t.Fatalf("%s: %+v %+v", flow, syn.Flow, syn.Hash)
			}
			ack := tracer.quiet(t, flow+" ack")
			if ack.Verdict.Reason != "KNOWN" || ack.Flow.Followed != old.Hash.Track || ack.Flow.Shared != old.Hash.Track || ack.Server.Slot != to {
				if old.Hash.Track || old.Hash.Held == 0 {
					t.Fatalf("%s: %+v %+v", flow, ack.Flow, ack.Server)
				}
			}
			if h := old.Hash; h.Form == "anchor" && (h.Rows != 16 || h.Path[len(h.Path)-1] != h.Slot || h.Path[0] != h.Row) || h.Form == "table" && h.Row >= h.Rows {
				t.Fatalf("%s: %+v", flow, h)
			}
			for _, s := range []*Story{old, fin, syn, ack} {
				if told, known := whys[s.Flow.Why]; known && !told {
					whys[s.Flow.Why] = true
					left--
				}
			}
		}
		if left > 0 {
			t.Errorf("%s: not all was told: %v", vip, whys)
		}
	}
	for _, packet := range []string{"tcp 203.0.113.7:4711 > 192.0.2.13:80 syn", "tcp 203.0.113.7:4711 > 192.0.2.13:80 psh"} {
		s := tracer.must(t, packet)
		if made := strings.HasSuffix(packet, "syn"); s.Flow.Made != made || s.Flow.Followed == made || s.Flow.Shared {
			t.Errorf("%s: %+v", packet, s.Flow)
		}
	}
	if s := tracer.must(t, "icmp 198.51.100.1 > 192.0.2.13 unreachable quoting tcp 192.0.2.13:80 > 203.0.113.7:4711"); s.Flow.Event != "peek" || !s.Flow.Followed {
		t.Errorf("an ICMP error about a tracked connection: %+v", s.Flow)
	}
	tracer.must(t, "tcp 203.0.113.7:1024 > 192.0.2.12:80 no-ts syn")
	tracer.must(t, "tcp 203.0.113.7:1025 > 192.0.2.11:80 no-ts psh")
}

// Packets of one capture meet what those before left behind, and cookies are
// as old as they were when they were captured.
func TestCapture(t *testing.T) {
	pinDir, _ := loaded(t)
	tracer, err := Open(pinDir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tracer.Close()
	hour := tracer.opened.Add(-time.Hour)
	src, dst := netip.MustParseAddrPort("203.0.113.7:4711"), netip.MustParseAddrPort("192.0.2.10:80")
	tracked := netip.MustParseAddrPort("192.0.2.13:80") // by full-ct
	key := cheetah.VIPKey(testAssignment.Keys[0].Secret, dst.Addr(), 80, protoTCP)
	stamped := tracer.now - uint32(time.Hour.Milliseconds()) - 5000
	ecr := cheetah.Layout{Bits: 12}.Stamp(key, 0, src, 80, 1, stamped)
	var file bytes.Buffer
	if err := wire.WritePcap(&file, []wire.Captured{
		{Time: hour, Frame: wire.TCP{Src: src, Dst: dst, Flags: wire.ACK, Options: wire.Timestamp(1, ecr)}.Frame()},
		{Time: hour, Frame: wire.TCP{Src: src, Dst: tracked, Flags: wire.SYN}.Frame()},
		{Time: hour.Add(10 * time.Second), Frame: wire.TCP{Src: src, Dst: tracked, Flags: wire.ACK}.Frame()},
	}); err != nil {
		t.Fatal(err)
	}
	stories, err := tracer.Capture(t.Context(), &file)
	if err != nil {
		t.Fatal(err)
	}
	if s := stories[0]; s.Verdict.Reason != "KNOWN" || s.Server.Slot != 1 || s.Cookie.AgeMS < 4000 || s.Cookie.AgeMS > 6000 {
		t.Errorf("cookie of a capture: %+v %+v", s.Verdict, s.Cookie)
	}
	if s := stories[1]; s.Left.FlowEntries != 1 || s.Left.Tracked != 1 || s.Left.NewConnections != 1 || s.Left.OpenConnections != 1 {
		t.Errorf("a SYN under full-ct left %+v", s.Left)
	}
	if s := stories[2]; s.Number != 3 || !s.Flow.Followed || s.Flow.Before.AgeMS < 9000 || s.Flow.Before.AgeMS > 11000 ||
		s.Server.Slot != stories[1].Server.Slot {
		t.Errorf("the next packet of the flow: %+v", s.Flow)
	}
	// One that the program cannot run ends it, not what was told before.
	frames := []wire.Captured{{Time: hour, Frame: wire.TCP{Src: src, Dst: tracked, Flags: wire.SYN}.Frame()}, {Time: hour, Frame: make([]byte, 9000)}}
	file.Reset()
	if err := wire.WritePcap(&file, frames); err != nil {
		t.Fatal(err)
	}
	if stories, err := tracer.Capture(t.Context(), &file); len(stories) != 1 || err == nil || !strings.Contains(err.Error(), "packet 2") {
		t.Errorf("%d stories, %v", len(stories), err)
	}
}

func TestOpenRefuses(t *testing.T) {
	_, err := Open(filepath.Join(filepath.Dir(kernel.Dir("x")), "fl-trace-none"), nil)
	if err == nil || !strings.Contains(err.Error(), "fairlead lb") {
		t.Errorf("error %v names no remedy", err)
	}
}

// A connection that is refused an entry is told where it goes and why; so is
// one that is tracked as all of its VIP are.
func TestWhy(t *testing.T) {
	v := &model.VIP{Scheme: vip.JET, TrackAll: true}
	const full = "all seven entries of its set are live and confirmed"
	for _, c := range []struct {
		event    jet.Event
		place    model.Place
		inserted jet.Inserted
		says     string
		not      string
	}{
		{jet.Open, model.Place{Slot: 0, Held: 1, Track: true}, jet.Full, full + " (limits.flows): it goes where its next packet will", ""},
		{jet.Open, model.Place{Slot: 0, Held: -1, Track: true, New: true}, jet.Full, full, "its next packet"},
		{jet.Data, model.Place{Slot: 0, Held: 1, Track: true}, jet.Full, full, "its next packet"},
		{jet.Data, model.Place{Slot: 1, Held: 1}, jet.Made, "every connection of this VIP must", ""},
		{jet.Data, model.Place{Slot: 0, Held: 1, Track: true}, jet.Made, "held by slot 1", ""},
	} {
		got := why(model.Result{VIP: v, Place: &c.place, Flow: &model.Flow{TCP: true, Event: c.event, Enters: true, Inserted: c.inserted}})
		if !strings.Contains(got, c.says) || c.not != "" && strings.Contains(got, c.not) {
			t.Errorf("%v, %+v, %v: %q, want %q", c.event, c.place, c.inserted, got, c.says)
		}
	}
}
