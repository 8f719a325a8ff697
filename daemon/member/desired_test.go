package member_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon/member/membertest"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

// peersOf is whom a daemon knows.
func peersOf(d *membertest.Deployment, name string) string {
	var names []string
	for _, p := range d.Status(name).Peers {
		names = append(names, p.Name)
	}
	return strings.Join(names, " ")
}

// ownFile gives the daemon called name a file that holds only how to come to the store.
func ownFile(t *testing.T, d *membertest.Deployment, name string) {
	t.Helper()
	var boot strings.Builder
	for line := range strings.Lines(string(d.Text())) {
		if strings.HasPrefix(line, "secret") || strings.HasPrefix(line, "tls") || strings.HasPrefix(line, "controllers") {
			boot.WriteString(line)
		}
	}
	if err := os.WriteFile(filepath.Join(d.Dir, name+".yaml"), []byte(boot.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// withS3 is the deployment's text with a server more and a VIP more.
func withS3(d *membertest.Deployment) []byte {
	s3 := fmt.Sprintf("  - {name: s3, address: 10.0.0.23, interfaces: [eth0], api: \"unix:%s/s3.sock\", metrics: \"\"}\nvips:\n  - {name: more, address: 192.0.2.11, port: 80, servers: [s3]}\n", d.Dir)
	return []byte(strings.Replace(string(d.Text()), "vips:\n", s3, 1))
}

// TestDesired: a new server and VIP reach running daemons by apply alone; the server's
// agent, whose file holds only how to come to the store, waits until then to be told
// what it is. All know it over a restart without the store.
func TestDesired(t *testing.T) {
	t.Parallel()
	d := stored(t)
	ownFile(t, d, "s3")
	serves := d.Begin(d.Role(config.RoleHost, "s3"), "s3")
	c := d.Coordinator()
	d.Eventually("the store has a report of s3", func() bool {
		reports, err := c.Ledger.Reports(t.Context())
		r := reports["s3"]
		return err == nil && r.Waits && strings.Contains(r.Error, "--name s3: not among the configuration's servers")
	})
	text := withS3(d)
	ch, err := c.Apply(t.Context(), text, rollout.Options{})
	if err != nil || len(ch.Silent) > 0 {
		t.Fatalf("%+v %v", ch, err)
	}
	if d.Config, err = d.Config.Desired(d.Config.File(), text); err != nil {
		t.Fatal(err)
	}
	serves()
	all := append([]string{"s3"}, everybody...)
	have(t, d, ch.To, all...)
	d.Eventually("balancers know s3", func() bool {
		return strings.Contains(peersOf(d, "lb1"), "s3") && strings.Contains(peersOf(d, "lb2"), "s3")
	})
	if v, ok := d.Held("lb1").VIP("more"); !ok || len(v.Slots) != 1 || v.Slots[0].Server != "s3" {
		t.Errorf("%+v", v)
	}
	for _, name := range all {
		if s := d.Status(name); strings.Contains(strings.Join(s.Warnings, "\n"), "differs from assignment") {
			t.Errorf("%s: %q", name, s.Warnings)
		}
	}
	for name, is := range map[string]config.Role{"lb1": config.RoleBalancer, "s3": config.RoleHost} {
		d.Stops[name]()
		d.Away = true
		d.Start(is, name)
		d.Away = false
		d.Eventually(name+" knows its peers", func() bool {
			got := peersOf(d, name)
			return strings.Contains(got, "lb2") && (name != "lb1" || strings.Contains(got, "s3"))
		})
		d.Cut(false, name)
	}
	have(t, d, ch.To, all...)
}

// TestStoreAnew: daemons go by a text of a store that is gone, whose number is that of the
// version which the new store begins with, as where one balancer becomes several. They
// take the text that is applied there, also where another came under that number.
func TestStoreAnew(t *testing.T) {
	t.Parallel()
	for _, begun := range []bool{false, true} {
		d := stored(t)
		a := d.Held("lb1")
		d.StopAll()
		d.Memory = store.NewMemory()
		c := d.Coordinator()
		d.StartAll()
		if begun {
			head, err := c.Ledger.Append(t.Context(), ledger.Head{}, nil, a, ledger.Change{Who: "an earlier build", Text: withS3(d)})
			if err == nil {
				_, err = c.Ledger.Turn(t.Context(), head, rollout.Kinds)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		d.Eventually("they say that they have another text", func() bool {
			reports, err := c.Ledger.Reports(t.Context())
			for _, name := range everybody {
				if err != nil || reports[name].Ahead != 1 {
					return false
				}
			}
			return true
		})
		d.Eventually("they say why", func() bool {
			return d.Warned("lb1", "it is of version 1, and this daemon goes by that of version 1") == begun
		})
		text := append(d.Text(), "# applied to the new store\n"...)
		if ch, err := c.Apply(t.Context(), text, rollout.Options{}); err != nil || ch.To != 2 {
			t.Fatalf("begun %v: %+v %v", begun, ch, err)
		}
		for _, name := range everybody {
			d.Eventually(name+" has it", func() bool {
				reports, err := c.Ledger.Reports(t.Context())
				return err == nil && reports[name].Version == 2 && reports[name].Ahead == 0
			})
			if d.Warned(name, "cannot be used here") {
				t.Errorf("begun %v: %s: %q", begun, name, d.Status(name).Warnings)
			}
		}
		if ch, err := c.Apply(t.Context(), text, rollout.Options{}); err != nil || ch.To != 2 {
			t.Errorf("begun %v, again: %+v %v", begun, ch, err)
		}
		d.StopAll()
	}
}

// TestDesiredUnusable: a text that a daemon cannot use changes nothing there, and it
// says so; the next that it can use is in force.
func TestDesiredUnusable(t *testing.T) {
	t.Parallel()
	d := stored(t)
	c := d.Coordinator()
	put := func(text string) {
		t.Helper()
		head, err := c.Ledger.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		a, err := c.Ledger.Read(t.Context(), head.Version, nil)
		if err != nil {
			t.Fatal(err)
		}
		next := a.Clone()
		next.Version++
		head, err = c.Ledger.Append(t.Context(), head, a, next, ledger.Change{Who: "a later build", Text: []byte(text)})
		if err == nil {
			_, err = c.Ledger.Turn(t.Context(), head, 3)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const cannot = "cannot be used here, and what was wanted before goes on: "
	put(string(d.Text()) + "later: true\n")
	for _, name := range everybody {
		d.Eventually(name+" warns", func() bool {
			return d.Warned(name, "the configuration of version 2 "+cannot) && d.Warned(name, "later: unknown key")
		})
	}
	d.Eventually("the version is in force all the same", func() bool { return d.Status("lb1").AssignmentVersion == 2 })
	d.Eventually("lb1 knows whom it knew", func() bool { return peersOf(d, "lb1") == "lb2 s1 s2" || peersOf(d, "lb1") == "s1 s2 lb2" })
	without := strings.Replace(string(d.Text()), "{name: lb2, ", "{name: lb9, ", 1)
	put(without)
	d.Eventually("lb2 warns", func() bool {
		return d.Warned("lb2", "the configuration of version 3 "+cannot) && d.Warned("lb2", "lb1, lb9")
	})
	d.Eventually("lb1 goes by it", func() bool { return !d.Warned("lb1", cannot) && peersOf(d, "lb1") == "lb9 s1 s2" })
	d.Stops["lb2"]()
	d.Start(config.RoleBalancer, "lb2")
	if !d.Warned("lb2", cannot) {
		t.Error("started again it does not warn")
	}
	put(string(d.Text()))
	d.Eventually("nobody warns", func() bool {
		return !d.Warned("lb1", cannot) && !d.Warned("lb2", cannot) && strings.Contains(peersOf(d, "lb1"), "lb2")
	})
}

// TestDesiredSettings: what takes a restart is named when the store wants it, and in
// force after the restart.
func TestDesiredSettings(t *testing.T) {
	t.Parallel()
	d := stored(t)
	text := strings.Replace(string(d.Text()), "vips:", "limits: {flows: 4096}\nvips:", 1)
	if _, err := d.Coordinator().Apply(t.Context(), []byte(text), rollout.Options{}); err != nil {
		t.Fatal(err)
	}
	const restart = "limits changed in fairlead.yaml of version 2: restart this daemon"
	d.Eventually("lb1 warns", func() bool { return d.Warned("lb1", restart) })
	d.Stops["lb1"]()
	d.Start(config.RoleBalancer, "lb1")
	if d.Warned("lb1", restart) {
		t.Error("it was restarted")
	}
}
