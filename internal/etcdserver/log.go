package etcdserver

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// A member that misses another one says so several times a second: of one
// message sampleFirst in a sampleTick are enough.
const (
	sampleTick  = time.Minute
	sampleFirst = 3
)

// LogTo is a logger for Config that writes to log what etcd warns of, each
// message a few times a minute at most, and the rest at the level of debugging.
func LogTo(log *slog.Logger) *zap.Logger {
	return zap.New(zapcore.NewSamplerWithOptions(slogCore{log}, sampleTick, sampleFirst, 0))
}

// lastWords is a logger for what etcd says before it ends the process.
func lastWords() *zap.Logger {
	encoder := zapcore.NewConsoleEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(os.Stderr), zapcore.DPanicLevel))
}

// slogCore writes what zap was given to a logger of the standard library.
type slogCore struct{ log *slog.Logger }

// harmless is what etcd warns of at each start: there is one port for gRPC and
// for what else it serves, and tokens of a login are no certificates.
var harmless = []string{
	"Running http and grpc server on single port. This is not recommended for production.",
	"simple token is not cryptographically signed",
}

// levelOf is a level of etcd as one of ours: what it tells of its everyday life
// is of no interest to who runs a daemon.
func levelOf(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.ErrorLevel:
		return slog.LevelError
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

func (c slogCore) Enabled(l zapcore.Level) bool {
	return c.log.Enabled(context.Background(), levelOf(l))
}

func (c slogCore) With(fields []zapcore.Field) zapcore.Core {
	return slogCore{slog.New(c.log.Handler().WithAttrs(attributes(fields)))}
}

func (c slogCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) && !slices.Contains(harmless, e.Message) {
		return checked.AddCore(e, c)
	}
	return checked
}

func (c slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.log.LogAttrs(context.Background(), levelOf(e.Level), "etcd: "+e.Message, attributes(fields)...)
	return nil
}

func (c slogCore) Sync() error { return nil }

func attributes(fields []zapcore.Field) []slog.Attr {
	out := make([]slog.Attr, 0, len(fields))
	for _, f := range fields {
		if f.Type == zapcore.SkipType { // the error that there was not
			continue
		}
		encoder := zapcore.NewMapObjectEncoder()
		f.AddTo(encoder)
		out = append(out, slog.Any(f.Key, encoder.Fields[f.Key]))
	}
	return out
}

// hushed is a log that can be silenced: a server complains of each listener
// that it closes itself.
type hushed struct {
	zapcore.Core
	quiet *atomic.Bool
}

func (h hushed) With(fields []zapcore.Field) zapcore.Core {
	return hushed{h.Core.With(fields), h.quiet}
}

func (h hushed) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if h.quiet.Load() && e.Level < zapcore.DPanicLevel {
		return checked
	}
	return h.Core.Check(e, checked)
}
