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
		"values":               func(t *testing.T, member string) { garbage(t, filepath.Join(member, "snap", "db")) },
		"values, cut to 100":   func(t *testing.T, member string) { cut(t, member, 100) },
		"values, cut to 16384": func(t *testing.T, member string) { cut(t, member, 16384) },
		"values, cut to 20000": func(t *testing.T, member string) { cut(t, member, 20000) },
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

func cut(t *testing.T, member string, size int64) {
	t.Helper()
	file := filepath.Join(member, "snap", "db")
	info, err := os.Stat(file)
	if err != nil || info.Size() <= size {
		t.Fatal(info.Size(), err)
	}
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
}
