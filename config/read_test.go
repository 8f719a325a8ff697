package config

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/config/yamlfile"
)

// TestUnfitFiles: what is no regular file, or is too large, is answered at
// once, as the configuration and as its secret_file.
func TestUnfitFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(syscall.Mkfifo(at("fifo"), 0o600))
	must(os.Symlink("fifo", at("link")))
	must(os.WriteFile(at("large.secret"), bytes.Repeat([]byte(" "), maxSecret+1), 0o600))
	must(os.WriteFile(at("large.yaml"), bytes.Repeat([]byte("\n"), yamlfile.MaxFile+1), 0o600))

	const content = "write the content to a file and name that"
	for path, want := range map[string]string{
		at("fifo"):       "is a FIFO, must be a regular file; " + content,
		at("link"):       "is a FIFO, must be a regular file; " + content,
		"/dev/zero":      "is a device, must be a regular file; " + content,
		dir:              "is a folder, must be a regular file; " + content,
		at("large.yaml"): "is larger than 4 MiB; see whether the path is right, and write a list that repeats once, as &pool [s1, s2], and then as *pool",
		at("missing"):    "cannot be read: no such file or directory; name the file with -f",
	} {
		if _, err := Load(path); err == nil || err.Error() != path+": "+want {
			t.Errorf("Load(%s): %v, want %s", path, err, want)
		}
	}
	file := at("fairlead.yaml")
	for secret, want := range map[string]string{
		"link":         "is a FIFO, must be a regular file; " + content,
		"/dev/zero":    "is a device, must be a regular file; " + content,
		"large.secret": "is larger than 4 KiB; see whether the path is right",
	} {
		must(os.WriteFile(file, []byte(strings.Replace(good, "secret: ", "secret_file: "+secret+"\n#", 1)), 0o600))
		if _, err := Load(file); err == nil || err.Error() != file+":2:14: secret_file: "+secret+": "+want {
			t.Errorf("secret_file %s: %v, want %s", secret, err, want)
		}
	}

	// What is as large as may be, by a symbolic link.
	secret := strings.Repeat("0123456789abcdef", 4)
	must(os.WriteFile(at("whole"), []byte(secret+strings.Repeat("\n", maxSecret-len(secret))), 0o600))
	must(os.Symlink("whole", at("good")))
	must(os.WriteFile(file, []byte(strings.Replace(good, "secret: ", "secret_file: good\n#", 1)), 0o600))
	if _, err := Load(file); err != nil {
		t.Error(err)
	}
}
