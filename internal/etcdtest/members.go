package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/controllerd/controllerd/internal/etcdserver"
)

// Members is a real etcd of several members, at etcd's own timings, that ends
// with its test.
type Members struct {
	t       testing.TB
	servers []*etcdserver.Server
}

// StartMembers runs an etcd of n members in temporary directories on free ports
// of loopback. Nothing of it survives a restart.
func StartMembers(t testing.TB, n int) *Members {
	t.Helper()
	m := &Members{t: t, servers: make([]*etcdserver.Server, n)}
	t.Cleanup(m.stop)
	var err error
	for range 3 { // a free port may be taken before it is bound
		if err = m.run(); err == nil {
			return m
		}
		m.stop()
	}
	t.Fatalf("start etcd: %v", err)
	return nil
}

func (m *Members) run() error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	free, err := FreeAddresses(len(m.servers))
	if err != nil {
		return err
	}
	peers := map[string]string{}
	for i, addr := range free {
		peers[memberName(i)] = addr
	}
	dir := m.t.TempDir()
	faults := make([]error, len(m.servers))
	var all sync.WaitGroup
	for i := range m.servers {
		all.Go(func() {
			name := memberName(i)
			m.servers[i], faults[i] = etcdserver.Start(ctx, etcdserver.Config{
				Dir: filepath.Join(dir, name), Addr: "127.0.0.1:0", Name: name, Members: peers, KeepRevisions: -1, NoFsync: true,
			})
		})
	}
	all.Wait()
	return errors.Join(faults...)
}

func memberName(i int) string { return fmt.Sprint("member-", i) }

// FreeAddresses are addresses of loopback at which nobody listens.
func FreeAddresses(n int) ([]string, error) {
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find free port: %w", err)
		}
		defer l.Close() // not before all are found
		out = append(out, l.Addr().String())
	}
	return out, nil
}

func (m *Members) stop() {
	var all sync.WaitGroup
	for i, s := range m.servers {
		if s != nil {
			all.Go(func() { _ = s.HardStop() })
			m.servers[i] = nil
		}
	}
	all.Wait()
}

// Endpoint is the host:port at which clients dial a member.
func (m *Members) Endpoint(i int) string { return m.servers[i].Addr() }

// Watchers is the number of watch streams that clients hold open at a member.
func (m *Members) Watchers(i int) int { return m.servers[i].Watchers() }

// Isolate cuts a member off from all others; its clients still reach it.
func (m *Members) Isolate(i int) { m.between(i, (*etcdserver.Server).Cut) }

// Rejoin undoes Isolate.
func (m *Members) Rejoin(i int) { m.between(i, (*etcdserver.Server).Mend) }

func (m *Members) between(i int, do func(from, to *etcdserver.Server)) {
	for j, other := range m.servers {
		if j != i {
			do(m.servers[i], other)
			do(other, m.servers[i])
		}
	}
}
