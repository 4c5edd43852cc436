package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/etcdserver"
	"github.com/controllerd/controllerd/internal/etcdtest"
	"github.com/controllerd/controllerd/store/etcdstore"
)

// asMember holds the configuration with which the test binary is a member of
// etcd instead.
const asMember = "TEST_AS_ETCD_MEMBER"

// memberConfig is that of etcdserver.Config which such a process needs.
type memberConfig struct {
	Dir, Addr, Name, Token string
	Members                map[string]string
	Join                   bool
}

// runMember is the life of such a process: until it is killed.
func runMember() {
	var c memberConfig
	err := json.Unmarshal([]byte(os.Getenv(asMember)), &c)
	if err == nil {
		var s *etcdserver.Server
		if s, err = etcdserver.Launch(context.Background(), etcdserver.Config{
			Dir: c.Dir, Addr: c.Addr, Name: c.Name, Token: c.Token, Members: c.Members, Join: c.Join, KeepRevisions: -1,
		}); err == nil {
			err = <-s.Err() // it was removed
		}
	}
	fmt.Fprintln(os.Stderr, "etcd member:", err)
	os.Exit(1)
}

// member is a member of etcd as a process of its own.
type member struct {
	t      *testing.T
	cfg    memberConfig
	cmd    *exec.Cmd
	exited chan struct{}
}

// run starts the process, the first time or again.
func (m *member) run() {
	m.t.Helper()
	text, err := json.Marshal(m.cfg)
	if err != nil {
		m.t.Fatal(err)
	}
	m.cmd = exec.Command(os.Args[0])
	m.cmd.Env = append(os.Environ(), asMember+"="+string(text))
	m.cmd.Stderr = os.Stderr
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = m.cmd.Wait()
	}()
	m.exited = exited
}

func (m *member) signal(s syscall.Signal) {
	m.t.Helper()
	select {
	case <-m.exited:
	default:
		if err := m.cmd.Process.Signal(s); err != nil {
			m.t.Errorf("send %v to %s: %v", s, m.cfg.Name, err)
		}
	}
}

func (m *member) kill() {
	m.signal(syscall.SIGKILL)
	<-m.exited
}

// members is an etcd whose members are processes.
type members []*member

// newMembers starts an etcd of n members, at etcd's own timings.
func newMembers(t *testing.T, n int) members {
	t.Helper()
	free, err := etcdtest.FreeAddresses(2 * n)
	if err != nil {
		t.Fatal(err)
	}
	peers := map[string]string{}
	for i := range n {
		peers[fmt.Sprint("m", i)] = free[2*i]
	}
	var ms members
	dir := t.TempDir()
	for i := range n {
		name := fmt.Sprint("m", i)
		ms = append(ms, startMember(t, memberConfig{
			Dir: filepath.Join(dir, name), Addr: free[2*i+1], Name: name, Members: peers, Token: t.Name(),
		}))
	}
	return ms
}

func startMember(t *testing.T, cfg memberConfig) *member {
	t.Helper()
	m := &member{t: t, cfg: cfg}
	m.run()
	t.Cleanup(m.kill)
	return m
}

func (ms members) endpoints() []string {
	var out []string
	for _, m := range ms {
		out = append(out, m.cfg.Addr)
	}
	return out
}

// ofEndpoints is a world on an etcd that runs already, or soon will.
func ofEndpoints(t *testing.T, endpoints ...string) *world {
	t.Helper()
	w := &world{t: t, keys: cluster.KeysOf(clusterName), log: &logBuffer{}, made: map[string]bool{}, endpoints: endpoints}
	client, err := etcdstore.Dial(etcdstore.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	w.client, w.store = client, etcdstore.New(client)
	w.tape = startTape(t, client, w.keys)
	t.Cleanup(w.end)
	return w
}

// etcdLeader is the endpoint of the member that leads.
func (w *world) etcdLeader(endpoints []string) string {
	w.t.Helper()
	leader := ""
	w.await("etcd has a leader", limit, func() bool {
		for _, e := range endpoints {
			ctx, cancel := context.WithTimeout(context.Background(), takeover)
			status, err := w.client.Status(ctx, e)
			cancel()
			if err == nil && status.Leader == status.Header.MemberId {
				leader = e
				return true
			}
		}
		return false
	})
	return leader
}

// caughtUp waits until a member has applied what the others have.
func (w *world) caughtUp(endpoint string) {
	w.t.Helper()
	own, err := etcdstore.Dial(etcdstore.Config{Endpoints: []string{endpoint}})
	if err != nil {
		w.t.Fatal(err)
	}
	defer own.Close()
	w.await("the member at "+endpoint+" has caught up", limit, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), takeover)
		defer cancel()
		_, err := own.Get(ctx, w.keys.Prefix(), clientv3.WithPrefix(), clientv3.WithCountOnly()) // linearizable
		return err == nil
	})
}

// byEndpoint is the member at an endpoint.
func (ms members) byEndpoint(e string) *member {
	return ms[slices.IndexFunc(ms, func(m *member) bool { return m.cfg.Addr == e })]
}

// join starts one more member, which the cluster is told to add.
func (ms members) join(w *world, name string) *member {
	w.t.Helper()
	free, err := etcdtest.FreeAddresses(2)
	if err != nil {
		w.t.Fatal(err)
	}
	w.await("etcd adds a member", limit, func() bool { // it first wants to see that the others are well
		_, err = w.client.MemberAdd(w.call(), []string{"http://" + free[0]})
		return err == nil
	})
	cfg := ms[0].cfg
	cfg.Dir, cfg.Addr, cfg.Name, cfg.Join = filepath.Join(w.t.TempDir(), name), free[1], name, true
	cfg.Members = maps.Clone(map[string]string{name: free[0]})
	for _, m := range ms {
		cfg.Members[m.cfg.Name] = m.cfg.Members[m.cfg.Name]
	}
	m := startMember(w.t, cfg)
	w.caughtUp(m.cfg.Addr)
	return m
}
