package daemontest

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// SmallDisk is a file system of 128 KB at dir, for root alone.
func SmallDisk(t testing.TB, dir string) {
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

// Fill leaves no room on the disk of dir, and returns what makes some.
func Fill(t testing.TB, dir string) (empty func()) {
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
