package etcdtest

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/controllerd/controllerd/internal/etcdserver"
)

// Snapshot saves the present state and returns the file, as etcdctl snapshot
// save does.
func (c *Cluster) Snapshot() string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	saved, err := c.admin.Snapshot(ctx)
	if err != nil {
		c.t.Fatalf("take a snapshot: %v", err)
	}
	defer saved.Close()
	name := filepath.Join(c.t.TempDir(), "snapshot.db")
	f, err := os.Create(name)
	if err == nil {
		_, err = io.Copy(f, saved)
	}
	if err != nil {
		c.t.Fatalf("save a snapshot: %v", err)
	}
	if err := f.Close(); err != nil {
		c.t.Fatalf("save a snapshot: %v", err)
	}
	return name
}

// Restore stops the server and runs it again on the data of a snapshot, at the
// same address, as etcdutl snapshot restore prepares them. bump raises the
// revision and marks it as compacted; 0 does neither.
func (c *Cluster) Restore(from string, bump uint64) {
	c.t.Helper()
	c.Stop()
	c.cfg.Dir = c.t.TempDir()
	peer := "http://" + etcdserver.SinglePeer
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: from, Name: etcdserver.SingleName, OutputDataDir: filepath.Join(c.cfg.Dir, etcdserver.DataDir),
		PeerURLs: []string{peer}, InitialCluster: etcdserver.SingleName + "=" + peer, InitialClusterToken: "restored",
		RevisionBump: bump, MarkCompacted: bump > 0,
	})
	if err != nil {
		c.t.Fatalf("restore a snapshot: %v", err)
	}
	c.run()
}
