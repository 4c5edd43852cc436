package etcdserver_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-semver/semver"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"

	"github.com/controllerd/controllerd/internal/etcdserver"
)

// once runs a server until it answers.
func once(t *testing.T, cfg etcdserver.Config) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	s, err := etcdserver.Start(ctx, cfg)
	if err != nil {
		return err
	}
	return s.Stop()
}

// A directory belongs to one member: etcd itself would go on as that member,
// whatever it is configured to be.
func TestDirectoryOfAnotherMember(t *testing.T) {
	single := etcdserver.Config{Dir: t.TempDir(), Addr: "127.0.0.1:0", Tick: 10 * time.Millisecond, Election: 100 * time.Millisecond}
	if err := once(t, single); err != nil {
		t.Fatal(err)
	}
	named := single
	named.Name, named.Members = "a", map[string]string{"a": "127.0.0.1:51999"}
	if err := once(t, named); !errors.Is(err, etcdserver.ErrOther) || !strings.Contains(err.Error(), "not at http://127.0.0.1:51999") {
		t.Errorf("a single member's, as one of several: %v", err)
	}
	if err := once(t, single); err != nil {
		t.Errorf("as before: %v", err)
	}
}

// A directory that a newer etcd has written is refused by an error, not by a
// panic.
func TestDirectoryOfANewerVersion(t *testing.T) {
	newer := semver.New("3.99.0")
	for name, tt := range map[string]struct {
		write func(backend.Backend)
		says  string
	}{
		"storage": {func(b backend.Backend) {
			b.BatchTx().LockInsideApply()
			schema.UnsafeSetStorageVersion(b.BatchTx(), newer)
			b.BatchTx().Unlock()
		}, "3.99"},
		"cluster": {func(b backend.Backend) {
			schema.NewMembershipBackend(zap.NewNop(), b).MustSaveClusterVersionToBackend(newer)
		}, "server version is lower than determined cluster version"},
	} {
		cfg := etcdserver.Config{Dir: t.TempDir(), Addr: "127.0.0.1:0", Tick: 10 * time.Millisecond, Election: 100 * time.Millisecond, Logger: zap.NewNop()}
		if err := once(t, cfg); err != nil {
			t.Fatal(err)
		}
		b := backend.NewDefaultBackend(zap.NewNop(), filepath.Join(cfg.Dir, "member.etcd", "member", "snap", "db"))
		tt.write(b)
		b.ForceCommit()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		err := once(t, cfg)
		if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), cfg.Dir) {
			t.Errorf("%s version: %v", name, err)
		}
	}
}

func TestLogTo(t *testing.T) {
	var out bytes.Buffer
	log := etcdserver.LogTo(slog.New(slog.NewTextHandler(&out, nil)))
	log.Info("everyday life")
	for range 100 {
		log.With(zap.String("peer", "x")).Warn("no answer", zap.Int("rtt", 7), zap.Error(nil))
	}
	log.Error("bad")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 || !strings.HasSuffix(lines[0], `level=WARN msg="etcd: no answer" peer=x rtt=7`) || !strings.HasSuffix(lines[3], `level=ERROR msg="etcd: bad"`) {
		t.Errorf("%s", out.String())
	}
}
