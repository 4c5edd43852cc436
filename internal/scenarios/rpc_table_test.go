package scenarios

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/controller"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/memstore"
)

// seats are an active daemon and a standby, and later a daemon that was
// deposed and has not heard of it, on a store in this process.
type seats struct {
	t     *testing.T
	store *memstore.Store
	keys  cluster.Keys
	conns map[string]*grpc.ClientConn // by daemon
	blind chan struct{}               // closed: the first daemon sees nothing any more

	mu    sync.Mutex
	views map[string]rpc.View // only what is no pointer
}

// blinded is a store whose watch stops bringing anything.
type blinded struct {
	store.Store
	blind <-chan struct{}
}

func (b blinded) Watch(ctx context.Context, w store.Watch, fn func(store.Batch)) error {
	return b.Store.Watch(ctx, w, func(batch store.Batch) {
		select {
		case <-b.blind:
			<-ctx.Done()
		default:
			fn(batch)
		}
	})
}

func newSeats(t *testing.T) *seats {
	s := &seats{
		t: t, store: memstore.New(), keys: cluster.KeysOf(clusterName), conns: map[string]*grpc.ClientConn{},
		blind: make(chan struct{}), views: map[string]rpc.View{},
	}
	s.daemon("first", blinded{s.store, s.blind})
	s.becomes("first", true)
	s.daemon("second", s.store)
	s.becomes("second", false)
	return s
}

// daemon runs a daemon until the end of the test.
func (s *seats) daemon(id string, st store.Store) {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	// With this TTL the deposed daemon takes long to notice that it is blind.
	c, err := controller.New(controller.Config{
		Store: st, Cluster: clusterName, ID: id, Endpoint: l.Addr().String(), LeaseTTL: 2 * time.Minute, Logger: log,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	server := rpc.NewServer(c, log, nil)
	var running sync.WaitGroup
	running.Go(func() { c.RunOrKill(context.Background(), ctx) })
	running.Go(func() { _ = server.Serve(ctx, l) })
	running.Go(func() {
		_ = c.Await(ctx, func(v rpc.View) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.views[id] = rpc.View{Active: v.Active, ClusterUUID: v.ClusterUUID, Pending: len(v.Image.Brokers) + len(v.Image.Topics)}
			return false
		})
	})
	s.t.Cleanup(func() {
		server.Kill()
		cancel()
		running.Wait()
	})
	s.conns[id] = dial(s.t, l.Addr().String())
}

func (s *seats) view(id string) rpc.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.views[id]
}

// becomes waits until a daemon serves the cluster, as the active one or not.
func (s *seats) becomes(id string, active bool) {
	s.t.Helper()
	if !poll(soon, func() bool { v := s.view(id); return v.ClusterUUID != "" && v.Active == active }) {
		s.t.Fatalf("daemon %s: active is not %v", id, active)
	}
}

// depose makes the second daemon the active one, behind the first one's back.
func (s *seats) depose() {
	s.t.Helper()
	close(s.blind)
	// The watch may have one more batch in hand; this one it keeps.
	for _, key := range []string{s.keys.Prefix() + "nonsense", s.keys.Controller()} {
		ops := []store.Op{store.Delete(key)}
		if key != s.keys.Controller() {
			ops = []store.Op{store.Put(key, nil)}
		}
		if _, err := s.store.Commit(context.Background(), store.Txn{If: []store.Cond{store.Missing("never/written")}, Then: ops}); err != nil {
			s.t.Fatal(err)
		}
	}
	s.becomes("second", true)
	if !s.view("first").Active {
		s.t.Fatal("the first daemon knows already that it was deposed")
	}
}

// state is what callers may not change by bad requests: every key but those of
// the election, which belong to the daemons.
func (s *seats) state() map[string]store.Rev {
	out := map[string]store.Rev{}
	list, err := s.store.List(context.Background(), s.keys.Prefix(), true)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, kv := range list.KVs {
		name := strings.TrimPrefix(kv.Key, s.keys.Prefix())
		if !strings.HasPrefix(name, "candidates/") && !strings.HasPrefix(name, "terms/") && !strings.HasPrefix(name, "controller") {
			out[kv.Key] = kv.ModRev
		}
	}
	return out
}

// method is one RPC, as its descriptor tells.
type method struct {
	path   string // as gRPC wants it
	input  protoreflect.MessageType
	output protoreflect.MessageType
	stream bool
}

// methods are those of all services that a daemon serves, by name.
func methods(t *testing.T) map[string]method {
	out := map[string]method{}
	files := []protoreflect.FileDescriptor{pb.File_controllerd_v1_broker_proto, pb.File_controllerd_v1_admin_proto, pb.File_controllerd_v1_metadata_proto}
	for _, f := range files {
		for i := range f.Services().Len() {
			service := f.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				out[string(m.Name())] = method{
					path:  fmt.Sprintf("/%s/%s", service.FullName(), m.Name()),
					input: typeOf(t, m.Input()), output: typeOf(t, m.Output()), stream: m.IsStreamingServer(),
				}
			}
		}
	}
	return out
}

func typeOf(t *testing.T, d protoreflect.MessageDescriptor) protoreflect.MessageType {
	t.Helper()
	mt, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return mt
}

// fields are the paths of all fields of a request, those of the messages in it
// included.
func fields(d protoreflect.MessageDescriptor, prefix string) []string {
	var out []string
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		path := prefix + string(f.Name())
		out = append(out, path)
		if f.Message() != nil && !f.IsMap() {
			out = append(out, fields(f.Message(), path+".")...)
		}
	}
	return out
}

// call makes one call and says what came of it: OK, Kafka's name of the error,
// or else the gRPC code; of an answer about several things, that of the first
// that failed.
func (m method) call(conn *grpc.ClientConn, req proto.Message) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
	defer cancel()
	resp := m.output.New().Interface()
	err := m.invoke(ctx, conn, req, resp)
	if err != nil && !errors.Is(err, io.EOF) {
		reason := rpc.ReasonOf(err)
		switch code := status.Code(err); {
		case reason == "":
			return code.String()
		case reason.Code() != code:
			return fmt.Sprintf("%s with code %s", reason, code)
		}
		return string(reason)
	}
	return outcome(resp)
}

func (m method) invoke(ctx context.Context, conn *grpc.ClientConn, req, resp proto.Message) error {
	if !m.stream {
		return conn.Invoke(ctx, m.path, req, resp)
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, m.path)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(req); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return stream.RecvMsg(resp)
}

func outcome(resp proto.Message) string {
	switch r := resp.(type) {
	case *pb.AlterPartitionResponse:
		for _, t := range r.GetTopics() {
			for _, p := range t.GetPartitions() {
				if p.GetError() != "" {
					return p.GetError()
				}
			}
		}
	case *pb.ElectLeadersResponse:
		for _, x := range r.GetResults() {
			if x.GetError() != "" {
				return x.GetError()
			}
		}
	case *pb.AlterPartitionReassignmentsResponse:
		for _, x := range r.GetResults() {
			if x.GetError() != "" {
				return x.GetError()
			}
		}
	case *pb.CreatePartitionsResponse:
		for _, x := range r.GetResults() {
			if x.GetError() != "" {
				return x.GetError()
			}
		}
	case *pb.AlterTopicsResponse:
		for _, x := range r.GetResults() {
			if x.GetError() != "" {
				return x.GetError()
			}
		}
	case *pb.DeleteTopicsResponse:
		for _, x := range r.GetResults() {
			if x.GetError() != "" {
				return x.GetError()
			}
		}
	case *pb.CreateTopicsResponse:
		for _, x := range r.GetResults() {
			if x.GetError() != "" {
				return x.GetError()
			}
		}
	}
	return "OK"
}

// TestRPCTable holds every RPC, and every field of its request, to its rows:
// each bad value gets its own error and changes nothing, at the active daemon,
// at a standby, and at one that was deposed and does not know it. An RPC or a
// field without rows fails the test.
func TestRPCTable(t *testing.T) {
	t.Parallel()
	s := newSeats(t)
	table := newRows(s)
	all := methods(t)
	for name, m := range all {
		have := table.of[name]
		if have == nil {
			t.Errorf("%s: no rows", name)
			continue
		}
		want := fields(m.input.Descriptor(), "")
		for _, path := range want {
			if len(have[path]) == 0 {
				t.Errorf("%s: no rows for field %s", name, path)
			}
		}
		for path := range have {
			if !slices.Contains(want, path) {
				t.Errorf("%s: rows for %s, which is no field", name, path)
			}
		}
	}
	for name := range table.of {
		if _, ok := all[name]; !ok {
			t.Errorf("rows for %s, which is no RPC", name)
		}
	}
	if t.Failed() {
		return
	}
	before := s.state()
	check := func(daemon string, want func(row) string) {
		t.Helper()
		var wg sync.WaitGroup
		few := make(chan struct{}, 32) // of them at once: under the race detector a huge one takes long
		for name, m := range all {
			for path, rows := range table.of[name] {
				for _, r := range rows {
					wg.Go(func() {
						few <- struct{}{}
						defer func() { <-few }()
						if got := m.call(s.conns[daemon], r.request); got != want(r) {
							t.Errorf("%s at %s, %s %s: %s, want %s", name, daemon, path, r.what, got, want(r))
						}
					})
				}
			}
			wg.Go(func() { // a request of any kind that is too big
				few <- struct{}{}
				defer func() { <-few }()
				huge := m.input.New()
				huge.SetUnknown(append([]byte{0xfa, 0xff, 0x07, 0x80, 0x80, 0xc0, 0x02}, make([]byte, 5<<20)...)) // field 16383, 5 MiB
				if got := m.call(s.conns[daemon], huge.Interface()); got != "ResourceExhausted" {
					t.Errorf("%s at %s: a request of 5 MiB: %s", name, daemon, got)
				}
			})
		}
		wg.Wait()
		if after := s.state(); !maps.Equal(before, after) {
			t.Errorf("at %s: %v became %v", daemon, before, after)
		}
	}
	rev := s.rev()
	check("second", func(r row) string { return r.want })
	check("first", func(r row) string { return r.want })
	if got := s.rev(); got != rev {
		t.Errorf("revision %d became %d", rev, got)
	}
	s.depose()
	before = s.state()
	check("first", func(r row) string {
		if r.decided {
			return string(cluster.NotController)
		}
		return r.want
	})
	check("second", func(r row) string { return r.want })
}

func (s *seats) rev() (rev store.Rev) {
	s.store.Do(func(m *memstore.Model, _ time.Duration) { rev = m.Rev() })
	return rev
}
