package embedded

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
)

// start turns what etcd dies of, when it cannot read its folder, into an error.
func start(cfg *embed.Config) (etcd *embed.Etcd, err error) {
	defer func() {
		if died := recover(); died != nil {
			err = damaged(cfg.Dir, died)
		}
	}()
	if err := intact(filepath.Join(cfg.Dir, "member", "snap", "db")); err != nil {
		return nil, damaged(cfg.Dir, err)
	}
	etcd, err = embed.StartEtcd(cfg)
	if err != nil && unreadable(err) {
		err = damaged(cfg.Dir, err)
	}
	return etcd, err
}

// unreadable: etcd says of its folder that it does not hold what was written there.
func unreadable(err error) bool {
	for _, is := range []error{walpb.ErrCRCMismatch, wal.ErrSnapshotMismatch, wal.ErrSnapshotNotFound,
		wal.ErrFileNotFound, wal.ErrMetadataConflict, wal.ErrSliceOutOfRange, wal.ErrDecoderNotFound, io.ErrUnexpectedEOF} {
		if errors.Is(err, is) {
			return true
		}
	}
	return strings.Contains(err.Error(), "found data inconsistency with peers") // etcd has no name for it
}

func damaged(dir string, why any) error {
	return fmt.Errorf("the store's folder %s is damaged (%v): %w", dir, why, errDamaged)
}

// intact reads all of the values' file, as etcd does: that dies of what is wrong there
// in a goroutine of its own, where nobody catches it.
func intact(file string) error {
	info, err := os.Stat(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// First its length alone: to read what is not there is a bus error.
	if err := reading(file, false, func(tx *bbolt.Tx) error {
		if tx.Size() > info.Size() {
			return fmt.Errorf("%s has %d bytes of %d", file, info.Size(), tx.Size())
		}
		return nil
	}); err != nil {
		return err
	}
	return reading(file, true, func(tx *bbolt.Tx) error {
		return tx.ForEach(func(_ []byte, bucket *bbolt.Bucket) error {
			return bucket.ForEach(func(_, _ []byte) error { return nil })
		})
	})
}

// reading has do read the file, whole with its list of free pages.
func reading(file string, whole bool, do func(*bbolt.Tx) error) error {
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{ReadOnly: true, PreLoadFreelist: whole, Timeout: time.Second})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.View(do)
}
