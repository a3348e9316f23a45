package broker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
)

// levelTrace is below debug: the broker's own debug lines, several for each connection.
const levelTrace = slog.LevelDebug - 4

// logBridge carries the log lines of nats-server to slog and remembers the first fatal one, which is how
// nats-server reports that it could not start. Its lines are prose, so they travel as an attribute and the level
// is lowered by one: what the broker calls an error is, for us, mostly a client that was refused.
type logBridge struct {
	log *slog.Logger

	mu    sync.Mutex // guards fatal and ready
	fatal string
	ready bool // Start has returned: nobody else will report a fatal line

	ill *illness
}

var _ server.Logger = (*logBridge)(nil)

func (b *logBridge) Noticef(format string, v ...any) { b.emit(slog.LevelDebug, format, v) }
func (b *logBridge) Debugf(format string, v ...any)  { b.emit(levelTrace, format, v) }
func (b *logBridge) Tracef(format string, v ...any)  { b.emit(levelTrace, format, v) }

// Warnf and Errorf also listen for the lines that say that nothing can be stored any more: nats-server has no other way
// to tell that covers consumers.
func (b *logBridge) Warnf(format string, v ...any) { b.alarm(format, v) }

// Errorf is Warnf: see above.
func (b *logBridge) Errorf(format string, v ...any) { b.alarm(format, v) }

func (b *logBridge) alarm(format string, v []any) {
	b.ill.hear(format, v)
	b.emit(slog.LevelWarn, format, v)
}

// Fatalf does not end the process. While starting, the text becomes the error of Start; later it is logged.
func (b *logBridge) Fatalf(format string, v ...any) {
	b.mu.Lock()
	if b.fatal == "" {
		b.fatal = fmt.Sprintf(format, v...)
	}
	ready := b.ready
	b.mu.Unlock()
	if ready {
		b.emit(slog.LevelError, format, v)
	}
}

// running is called when the start succeeded.
func (b *logBridge) running() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready = true
}

// fatalText is the first fatal line, or "".
func (b *logBridge) fatalText() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fatal
}

func (b *logBridge) emit(level slog.Level, format string, v []any) {
	ctx := context.Background() // a log line belongs to no call
	if b.log.Enabled(ctx, level) {
		b.log.Log(ctx, level, "broker log", "text", fmt.Sprintf(format, v...))
	}
}
