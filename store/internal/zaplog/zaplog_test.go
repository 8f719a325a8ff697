package zaplog

import (
	"bytes"
	"log/slog"
	"testing"

	"go.uber.org/zap"
)

func TestZaplog(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	z := New(log).With(zap.String("member", "one"))
	z.Info("not said")
	z.Warn("slow", zap.Int("ms", 3))
	z.Error("gone", zap.Strings("at", []string{"a", "b"}))
	func() {
		defer func() {
			if recover() != "damaged" {
				t.Error("etcd would have ended the process")
			}
		}()
		z.Fatal("damaged")
	}()
	New(nil).Error("to nobody")
	want := `level=WARN msg="etcd: slow" member=one ms=3
level=ERROR msg="etcd: gone" member=one at="[a b]"
level=ERROR msg="etcd: damaged" member=one
`
	if out.String() != want {
		t.Errorf("%s, not %s", &out, want)
	}
}
