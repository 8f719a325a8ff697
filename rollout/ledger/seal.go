package ledger

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// seal compresses a version, as what differs from the one before (zstd with that as
// its dictionary), and encrypts it: assignments hold keys, and whoever runs the
// store need not know them.
type seal struct {
	aead       cipher.AEAD
	deployment string
}

// maxContent bounds what a version may unpack to, in bytes: 8,388,608 buckets of a
// dozen VIPs.
const maxContent = 1 << 30

// newSeal: a deployment without a secret has none in its versions either.
func newSeal(secret []byte) (*seal, error) {
	if len(secret) == 0 {
		secret = make([]byte, 32)
	}
	derive := func(info string, n int) ([]byte, error) { return hkdf.Key(sha256.New, secret, nil, info, n) }
	key, err := derive("fairlead store key", 32)
	if err != nil {
		return nil, err
	}
	id, err := derive("fairlead store deployment", 16)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &seal{aead, hex.EncodeToString(id)}, nil
}

// windowOf holds content and what it is a delta on.
func windowOf(n int) int {
	window := 1 << 20
	for window < 2*n && window < zstd.MaxWindowSize {
		window <<= 1
	}
	return window
}

// smallContent is compressed with little memory, in bytes, what it is a delta on
// included.
const smallContent = 32 << 10

// close seals content as what differs from base, nil: whole. name is where it stands.
func (s *seal) close(content, base []byte, name string) ([]byte, error) {
	options := []zstd.EOption{zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(windowOf(max(len(content), len(base))))}
	switch {
	case len(content)+len(base) <= smallContent:
		// Else its tables, of 10 MB, would take longer to make than all the rest of a
		// small change.
		options = []zstd.EOption{zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(2 * smallContent), zstd.WithLowerEncoderMem(true), zstd.WithEncoderLevel(zstd.SpeedFastest)}
		if base != nil {
			options = append(options, zstd.WithEncoderDictRaw(1, base))
		}
	case base != nil:
		// A level that finds what the dictionary has far away; lower ones do not.
		options = append(options, zstd.WithEncoderDictRaw(1, base), zstd.WithEncoderLevel(zstd.SpeedBetterCompression))
	}
	e, err := zstd.NewWriter(nil, options...)
	if err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	packed := e.EncodeAll(content, nil)
	return s.aead.Seal(nil, nil, packed, []byte(name)), nil
}

// open is close's way back.
func (s *seal) open(data, base []byte, name string) ([]byte, error) {
	packed, err := s.aead.Open(nil, nil, data, []byte(name))
	if err != nil {
		return nil, fmt.Errorf("%w: it does not open under the deployment's secret", ErrDamaged)
	}
	options := []zstd.DOption{zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxContent), zstd.WithDecoderMaxWindow(zstd.MaxWindowSize)}
	if base != nil {
		options = append(options, zstd.WithDecoderDictRaw(1, base))
	}
	d, err := zstd.NewReader(nil, options...)
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	defer d.Close()
	content, err := d.DecodeAll(packed, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrDamaged, err)
	}
	return content, nil
}
