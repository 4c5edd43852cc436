package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os/exec"
	"sync"
	"time"
)

// Bounds of a run.
const (
	// Limit is how long a hook may take.
	Limit = 30 * time.Second
	// grace is how long a command has between being told to end and being
	// killed.
	grace = time.Second
	// maxOutput is how many bytes of what a command writes are logged.
	maxOutput = 1000
)

// Runner runs the hook of one Target.
type Runner struct {
	target Target
	log    *slog.Logger
	wg     sync.WaitGroup
}

// NewRunner is a Runner that logs what becomes of its hooks.
func NewRunner(t Target, log *slog.Logger) *Runner { return &Runner{target: t, log: log} }

// Given reports whether there is a hook to run.
func (r *Runner) Given() bool { return r.target.Given() }

// Start runs the hook in a goroutine and returns at once. The hook ends after
// Limit or, killed with all that it has started, with the context.
func (r *Runner) Start(ctx context.Context, c Change) {
	if !r.Given() {
		return
	}
	r.wg.Go(func() {
		limited, cancel := context.WithTimeout(ctx, Limit)
		defer cancel()
		begun := time.Now()
		log := r.log.With("hook", r.target.String(), "epoch", c.Epoch)
		if err := r.target.run(limited, c); err != nil {
			log.Warn("hook failed", "error", err, "took", time.Since(begun))
			return
		}
		log.Info("hook done", "took", time.Since(begun))
	})
}

// Wait returns when no hook runs any more.
func (r *Runner) Wait() { r.wg.Wait() }

func (t *Target) run(ctx context.Context, c Change) error {
	var err error
	if t.url != nil {
		err = t.post(ctx, c)
	} else {
		err = t.command(ctx, c)
	}
	switch {
	case err == nil || ctx.Err() == nil:
		return err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("not done in time: %w", err)
	}
	return fmt.Errorf("ended with its caller: %w", err)
}

func (t *Target) post(ctx context.Context, c Change) error {
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		if about := (*url.Error)(nil); errors.As(err, &about) {
			return about.Err // without the URL
		}
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, maxOutput) // so that the connection may end in order
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("answered %s", resp.Status)
	}
	return nil
}

func (t *Target) command(ctx context.Context, c Change) error {
	cmd := exec.CommandContext(ctx, t.args[0], t.args[1:]...)
	cmd.Env = c.environ()
	said := &head{}
	cmd.Stdout, cmd.Stderr = said, said
	group(cmd)
	cmd.WaitDelay = grace
	err := cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		killGroup(cmd.Process.Pid)
	}
	if errors.Is(err, exec.ErrWaitDelay) && ctx.Err() == nil {
		return nil // it did its work, and has left something running
	}
	if err != nil && len(said.text) > 0 {
		return fmt.Errorf("%w, it said: %s", err, said.text)
	}
	return err
}

// head keeps the beginning of what is written.
type head struct{ text []byte }

func (h *head) Write(b []byte) (int, error) {
	h.text = append(h.text, b[:min(len(b), maxOutput-len(h.text))]...)
	return len(b), nil
}
