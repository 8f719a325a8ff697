package embedded

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDamaged: a folder that cannot be read is named.
func TestDamaged(t *testing.T) {
	garbage := func(t *testing.T, file string) {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.Repeat("garbage ", int(info.Size()/8))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, damage := range map[string]func(t *testing.T, member string){
		"log": func(t *testing.T, member string) {
			logs, err := filepath.Glob(filepath.Join(member, "wal", "*.wal"))
			if err != nil || len(logs) == 0 {
				t.Fatal(logs, err)
			}
			garbage(t, logs[0])
		},
		"values": func(t *testing.T, member string) { garbage(t, filepath.Join(member, "snap", "db")) },
		"values, cut short": func(t *testing.T, member string) {
			if err := os.Truncate(filepath.Join(member, "snap", "db"), 100); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := alone(t)
			server := started(t, o)[0]
			put(t, opened(t, server.Endpoints()...), "a", "1")
			server.Close()
			damage(t, filepath.Join(o.Dir, "member"))
			if _, err := Start(within(t), o); err == nil || !strings.Contains(err.Error(), o.Dir+" is damaged") {
				t.Fatal(err)
			}
		})
	}
}
