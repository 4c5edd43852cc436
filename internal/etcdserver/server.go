package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// ErrInUse is returned if another process or server holds the data directory.
var ErrInUse = errors.New("data directory is in use")

// ErrOther is returned if the data directory is that of a member that is
// configured in another way, so of another cluster.
var ErrOther = errors.New("data directory belongs to another member")

// Server is a running member.
type Server struct {
	cfg     Config
	etcd    *embed.Etcd
	lock    *fileutil.LockedFile
	streams *streams
	quiet   atomic.Bool // it logs nothing but why it ends the process
	stop    sync.Once
}

// Start runs a server and returns when it answers; one of several members needs
// a majority of them for that. It fails as Launch does.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	s, err := Launch(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start etcd on %s: %w", s.cfg.Addr, err), s.HardStop())
	}
	return s, nil
}

// Launch runs a server that may not answer yet; calls wait until it does. It
// fails with ErrInUse if the directory is held, with ErrOther if it is that of
// another member, and with an error that wraps syscall.EADDRINUSE if a port is
// taken.
func Launch(ctx context.Context, cfg Config) (*Server, error) {
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
	s, err := launch(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s.lock = lock
	return s, nil
}

// launch binds and runs. Between finding a free port and binding it somebody
// else may take it, so that is tried again; a port that was asked for may
// still be held for a moment by a server that just stopped.
func launch(ctx context.Context, cfg Config) (*Server, error) {
	for attempt := 1; ; attempt++ {
		s, err := launchOnce(cfg)
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

func launchOnce(cfg Config) (*Server, error) {
	addr, err := freeAddr(cfg.Addr)
	if err != nil {
		return nil, err
	}
	cfg.Addr = addr
	s := &Server{streams: newStreams()}
	cfg.Logger = cfg.Logger.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return hushed{c, &s.quiet} }))
	s.cfg = cfg
	s.etcd, err = startEtcd(embedConfig(cfg, s.streams))
	if err != nil {
		return nil, fmt.Errorf("start etcd %s on %s in %s: %w", version.Version, addr, cfg.Dir, err)
	}
	if err := s.checkMembers(); err != nil {
		s.quiet.Store(true)
		s.etcd.Server.HardStop()
		s.etcd.Close()
		return nil, err
	}
	return s, nil
}

// startEtcd turns the panic with which etcd refuses a directory that a newer
// version has written into an error.
func startEtcd(cfg *embed.Config) (e *embed.Etcd, err error) {
	defer func() {
		if why := recover(); why != nil {
			e, err = nil, fmt.Errorf("%v", why)
		}
	}()
	return embed.StartEtcd(cfg)
}

// checkMembers compares what a directory knows of this member with what was
// configured, which etcd ignores once there is the former.
func (s *Server) checkMembers() error {
	known := s.etcd.Server.Cluster()
	own := known.Member(s.etcd.Server.MemberID())
	if own == nil { // it crashed before it wrote any, or was removed and will say so
		return nil
	}
	config := s.etcd.Config()
	if want := config.AdvertisePeerUrls[0].String(); !slices.Contains(own.PeerURLs, want) {
		var all []string
		for _, m := range known.Members() {
			all = append(all, m.PeerURLs...)
		}
		slices.Sort(all)
		return fmt.Errorf("%s: %w: it is at %s of %s, and not at %s of %s", s.cfg.Dir, ErrOther,
			strings.Join(own.PeerURLs, ","), strings.Join(all, ","), want, config.InitialCluster)
	}
	return nil
}

// ready waits until the server answers.
func (s *Server) ready(ctx context.Context) error {
	select {
	case <-s.etcd.Server.ReadyNotify():
		return nil
	case err := <-s.etcd.Err():
		return err
	case <-s.etcd.Server.StopNotify():
		return errors.New("stopped while starting")
	case <-ctx.Done():
		return ctx.Err()
	}
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

// Stop ends the server and releases its directory and ports. A leader hands
// over to another member first, if that takes no longer than a second. Stop may
// be called more than once.
func (s *Server) Stop() error {
	if len(s.cfg.Members) > 0 {
		moved := make(chan struct{})
		go func() {
			defer close(moved)
			_ = s.etcd.Server.TryTransferLeadershipOnShutdown() // ends with the server
		}()
		select {
		case <-moved:
		case <-time.After(handOverTimeout):
		}
	}
	return s.HardStop()
}

// HardStop is Stop without handing over: the others elect a leader when they
// miss this one.
func (s *Server) HardStop() error {
	var err error
	s.stop.Do(func() {
		s.quiet.Store(true)
		s.streams.end()
		s.etcd.Server.HardStop()
		s.etcd.Close()
		err = s.lock.Close()
	})
	return err
}
