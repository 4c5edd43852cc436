package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
)

// Defaults of Config.
const (
	DefaultTick                 = 100 * time.Millisecond
	DefaultElection             = time.Second
	DefaultQuota          int64 = 8 << 30
	DefaultKeepRevisions        = 10_000
	compactionBatch             = 5_000 // revisions; etcd's own 1,000 is slower than the write path
	compactionBatchPause        = 10 * time.Millisecond
	bindAttempts                = 10
	bindRetryInterval           = 50 * time.Millisecond
	advertisedPeerAddress       = "127.0.0.1:1" // etcd wants one; a single member never dials it
	memberName                  = "controllerd"
)

// ErrInUse is returned if another process or server holds the data directory.
var ErrInUse = errors.New("data directory is in use")

// Config says how to run the server.
type Config struct {
	// Dir is the data directory; it is made if it does not exist.
	Dir string
	// Addr is the client listen address, an IP and a port. Port 0 picks a free one.
	Addr string
	// Tick is the heartbeat interval and Election the election timeout, at
	// least five ticks. No lease is shorter than 1.5 election timeouts,
	// rounded up to a second. 0 means the defaults: 2 s leases.
	Tick, Election time.Duration
	// Quota is the size in bytes at which the server refuses writes. 0 means
	// DefaultQuota.
	Quota int64
	// KeepRevisions is how many revisions automatic compaction leaves. 0 means
	// DefaultKeepRevisions; below 0 turns compaction off.
	KeepRevisions int
	// Members are the addresses of all members for each other, by name, if there
	// are several; Name is this one's.
	Name    string
	Members map[string]string
	// ClientTLS secures what clients say; empty: they speak plain text.
	ClientTLS transport.TLSInfo
	// NoFsync trades durability for speed; for tests.
	NoFsync bool
	// Logger gets the server's log. Nil drops all but the reason for which etcd
	// ends the process, which goes to stderr.
	Logger *zap.Logger
}

// Server is a running member.
type Server struct {
	cfg     Config
	etcd    *embed.Etcd
	lock    *fileutil.LockedFile
	streams *streams
	stop    sync.Once
}

// Start runs a server and returns when it answers. It fails with ErrInUse if
// the directory is held, and with an error that wraps syscall.EADDRINUSE if
// the port is taken.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	// Without it etcd would wait for the other process's lock for ever.
	lock, err := fileutil.TryLockFile(filepath.Join(cfg.Dir, "lock"), os.O_WRONLY|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, fmt.Errorf("lock %s: %w", cfg.Dir, ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", cfg.Dir, err)
	}
	s, err := start(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s.lock = lock
	return s, nil
}

func (c Config) withDefaults() Config {
	if c.Tick == 0 {
		c.Tick = DefaultTick
	}
	if c.Election == 0 {
		c.Election = DefaultElection
	}
	if c.Quota == 0 {
		c.Quota = DefaultQuota
	}
	if c.KeepRevisions == 0 {
		c.KeepRevisions = DefaultKeepRevisions
	}
	if c.Logger == nil {
		c.Logger = lastWords()
	}
	return c
}

func lastWords() *zap.Logger {
	encoder := zapcore.NewConsoleEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(os.Stderr), zapcore.DPanicLevel))
}

// start binds and runs. Between finding a free port and binding it somebody
// else may take it, so that is tried again; a port that was asked for may
// still be held for a moment by a server that just stopped.
func start(ctx context.Context, cfg Config) (*Server, error) {
	for attempt := 1; ; attempt++ {
		s, err := startOnce(ctx, cfg)
		if !errors.Is(err, syscall.EADDRINUSE) || attempt == bindAttempts {
			return s, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(bindRetryInterval):
		}
	}
}

func startOnce(ctx context.Context, cfg Config) (*Server, error) {
	addr, err := freeAddr(cfg.Addr)
	if err != nil {
		return nil, err
	}
	cfg.Addr = addr
	s := &Server{cfg: cfg, streams: newStreams()}
	s.etcd, err = embed.StartEtcd(embedConfig(cfg, s.streams))
	if err != nil {
		return nil, fmt.Errorf("start etcd on %s: %w", addr, err)
	}
	select {
	case <-s.etcd.Server.ReadyNotify():
		return s, nil
	case err = <-s.etcd.Err():
	case <-s.etcd.Server.StopNotify():
		err = errors.New("stopped while starting")
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.etcd.Close()
	return nil, fmt.Errorf("start etcd on %s: %w", addr, err)
}

// freeAddr replaces port 0 by a free port: the server advertises its address,
// so it must know it before it binds.
func freeAddr(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("parse listen address: %w", err)
	}
	if port != "0" {
		return addr, nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return "", fmt.Errorf("find free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

func embedConfig(cfg Config, st *streams) *embed.Config {
	e := embed.NewConfig()
	e.Name = memberName
	e.Dir = filepath.Join(cfg.Dir, "member.etcd")
	client := url.URL{Scheme: "http", Host: cfg.Addr}
	if !cfg.ClientTLS.Empty() {
		client.Scheme, e.ClientTLSInfo = "https", cfg.ClientTLS
	}
	e.ListenClientUrls = []url.URL{client}
	e.AdvertiseClientUrls = []url.URL{client}
	e.ListenPeerUrls = nil
	e.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: advertisedPeerAddress}}
	e.InitialCluster = e.InitialClusterFromName(e.Name)
	if len(cfg.Members) > 0 {
		joinMembers(e, cfg)
	}
	e.EnableGRPCGateway = false

	e.TickMs = uint(cfg.Tick.Milliseconds())
	e.ElectionMs = uint(cfg.Election.Milliseconds())
	e.QuotaBackendBytes = cfg.Quota
	e.UnsafeNoFsync = cfg.NoFsync
	e.AutoCompactionMode = embed.CompactorModeRevision
	e.AutoCompactionRetention = strconv.Itoa(max(cfg.KeepRevisions, 0))
	e.CompactionBatchLimit = compactionBatch
	e.CompactionSleepInterval = compactionBatchPause

	e.ZapLoggerBuilder = embed.NewZapLoggerBuilder(cfg.Logger)
	e.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.ChainStreamInterceptor(st.intercept)}
	return e
}

// joinMembers makes the server one of several.
func joinMembers(e *embed.Config, cfg Config) {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(cfg.Members)) {
		all = append(all, name+"=http://"+cfg.Members[name])
	}
	own := []url.URL{{Scheme: "http", Host: cfg.Members[cfg.Name]}}
	e.Name, e.InitialCluster = cfg.Name, strings.Join(all, ",")
	e.ListenPeerUrls, e.AdvertisePeerUrls = own, own
}

// Cut drops, from now on, what this member has to say to another one; Mend ends
// that.
func (s *Server) Cut(other *Server) { s.etcd.Server.CutPeer(other.etcd.Server.MemberID()) }

// Mend undoes Cut.
func (s *Server) Mend(other *Server) { s.etcd.Server.MendPeer(other.etcd.Server.MemberID()) }

// Addr is the address that clients dial.
func (s *Server) Addr() string { return s.cfg.Addr }

// Member is the id of the member.
func (s *Server) Member() uint64 { return uint64(s.etcd.Server.MemberID()) }

// Err brings an error if the server ends by itself.
func (s *Server) Err() <-chan error { return s.etcd.Err() }

// Watchers is the number of watch streams that clients hold open.
func (s *Server) Watchers() int { return s.streams.open(watchMethod) }

// Stop ends the server and releases its directory and port. It may be called
// more than once.
func (s *Server) Stop() error {
	var err error
	s.stop.Do(func() {
		s.streams.end()
		if len(s.cfg.Members) > 0 {
			s.etcd.Server.HardStop() // or a leader would wait for a successor, which may be stopping too
		}
		s.etcd.Close()
		err = s.lock.Close()
	})
	return err
}
