// Package zaplog hands what etcd logs to a slog.Logger, from warnings on: below, it
// tells what it does, and above there is no reader but one who debugs etcd.
package zaplog

import (
	"context"
	"io"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/grpclog"
)

// gRPC writes errors to stderr unless told otherwise before anything of it is used;
// calls return them, too.
func init() {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
}

// New makes etcd's logger of log; nil: silent. What etcd would end the process for
// panics instead, with the message.
func New(log *slog.Logger) *zap.Logger {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return zap.New(&core{log: log}, zap.WithFatalHook(zapcore.WriteThenPanic))
}

type core struct {
	log    *slog.Logger
	fields []zapcore.Field
}

// noise is what etcd warns of in the course of things, some of it many times a second:
// that a call is tried again (its error says so in the end), how it is set up, and
// that its listeners close when it stops.
var noise = map[string]bool{
	"retrying of unary invoker failed": true,
	"Running http and grpc server on single port. This is not recommended for production.": true,
	"simple token is not cryptographically signed":                                         true,
	"stopping insecure grpc server due to error":                                           true,
	"stopped insecure grpc server due to error":                                            true,
	"stopping secure grpc server due to error":                                             true,
	"stopped secure grpc server due to error":                                              true,
	"setting up serving from embedded etcd failed.":                                        true,
}

func (c *core) Enabled(level zapcore.Level) bool { return level >= zapcore.WarnLevel }

func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{c.log, append(c.fields[:len(c.fields):len(c.fields)], fields...)}
}

func (c *core) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) && !noise[e.Message] {
		return checked.AddCore(e, c)
	}
	return checked
}

func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	level := slog.LevelWarn
	if e.Level > zapcore.WarnLevel {
		level = slog.LevelError
	}
	var attrs []slog.Attr
	for _, f := range append(c.fields[:len(c.fields):len(c.fields)], fields...) {
		values := zapcore.NewMapObjectEncoder()
		f.AddTo(values)
		for name, v := range values.Fields {
			attrs = append(attrs, slog.Any(name, v))
		}
	}
	c.log.LogAttrs(context.Background(), level, "etcd: "+e.Message, attrs...)
	return nil
}

func (c *core) Sync() error { return nil }
