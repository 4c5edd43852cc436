package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

const testUUID = "cluster-1"

// network is where daemons and control listeners are found.
type network struct {
	t         *testing.T
	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
	dialled   map[string]int
}

func newNetwork(t *testing.T) *network {
	return &network{t: t, listeners: map[string]*bufconn.Listener{}, dialled: map[string]int{}}
}

func (n *network) listen(addr string) *bufconn.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := bufconn.Listen(1 << 20)
	n.listeners[addr] = l
	return l
}

func (n *network) dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[addr]
	n.dialled[addr]++
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("nobody listens on %s", addr)
	}
	return l.DialContext(ctx)
}

func (n *network) dials(addr string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dialled[addr]
}

func (n *network) conn(addr string) *grpc.ClientConn {
	n.t.Helper()
	c, err := grpc.NewClient("passthrough:///"+addr, grpc.WithContextDialer(n.dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

// reasoned is an error as a daemon makes it.
func reasoned(r cluster.Reason) error {
	s, err := status.New(r.Code(), string(r)).WithDetails(&errdetails.ErrorInfo{Reason: string(r), Domain: cluster.ErrorDomain})
	if err != nil {
		panic(err)
	}
	return s.Err()
}

// daemon is one that answers as it is told to. Its fields are changed under mu.
type daemon struct {
	pb.UnimplementedBrokerServiceServer
	pb.UnimplementedAdminServiceServer
	server *grpc.Server

	mu          sync.Mutex
	uuid        string
	epoch       int64 // broker epoch of the next registration
	ce          int64
	err         error // of every call
	hang        bool  // every call waits for its context
	registers   []*pb.RegisterRequest
	renewals    []*pb.RenewSessionRequest
	renewedAt   []time.Time
	unregisters []*pb.UnregisterRequest
	alters      []*pb.AlterPartitionRequest
	alter       func(*pb.AlterPartitionRequest) (*pb.AlterPartitionResponse, error)
	controllers []string
}

func (n *network) daemon(addr string) *daemon {
	d := &daemon{uuid: testUUID, epoch: 10, ce: 5, server: grpc.NewServer()}
	pb.RegisterBrokerServiceServer(d.server, d)
	pb.RegisterAdminServiceServer(d.server, d)
	l := n.listen(addr)
	go d.server.Serve(l)
	n.t.Cleanup(d.server.Stop)
	return d
}

// set changes how the daemon answers.
func (d *daemon) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// enter is the start of every call; it returns with the lock held if there is
// no error.
func (d *daemon) enter(ctx context.Context) error {
	d.mu.Lock()
	err, hang := d.err, d.hang
	if err == nil && !hang {
		return nil
	}
	d.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (d *daemon) Register(ctx context.Context, r *pb.RegisterRequest) (*pb.RegisterResponse, error) {
	if err := d.enter(ctx); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	d.registers = append(d.registers, r)
	return &pb.RegisterResponse{ClusterUuid: d.uuid, BrokerEpoch: d.epoch, Lease: 77, SessionTtlMs: r.GetSessionTtlMs(), ControllerEpoch: d.ce}, nil
}

func (d *daemon) RenewSession(ctx context.Context, r *pb.RenewSessionRequest) (*pb.RenewSessionResponse, error) {
	if err := d.enter(ctx); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	if r.GetBrokerEpoch() != d.epoch {
		return nil, reasoned(cluster.StaleBrokerEpoch)
	}
	d.renewals = append(d.renewals, r)
	d.renewedAt = append(d.renewedAt, time.Now())
	return &pb.RenewSessionResponse{ControllerEpoch: d.ce}, nil
}

func (d *daemon) Unregister(ctx context.Context, r *pb.UnregisterRequest) (*pb.UnregisterResponse, error) {
	if err := d.enter(ctx); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	d.unregisters = append(d.unregisters, r)
	return &pb.UnregisterResponse{}, nil
}

func (d *daemon) AlterPartition(ctx context.Context, r *pb.AlterPartitionRequest) (*pb.AlterPartitionResponse, error) {
	if err := d.enter(ctx); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	d.alters = append(d.alters, r)
	if d.alter == nil {
		return &pb.AlterPartitionResponse{}, nil
	}
	return d.alter(r)
}

func (d *daemon) ListControllers(ctx context.Context, _ *pb.ListControllersRequest) (*pb.ListControllersResponse, error) {
	if err := d.enter(ctx); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	resp := &pb.ListControllersResponse{}
	for _, addr := range d.controllers {
		resp.Controllers = append(resp.Controllers, &pb.ControllerSummary{Id: addr, Endpoint: addr})
	}
	return resp, nil
}

func (d *daemon) counts() (registers, renewals, unregisters int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.registers), len(d.renewals), len(d.unregisters)
}

// call is a call of the handler.
type call struct {
	state PartitionState
	ctx   context.Context
	end   chan error // the call returns what is sent
}

// handler is one whose calls can be seen and held.
type handler struct {
	calls    chan call // of ApplyPartition, unless auto
	auto     func(PartitionState) error
	adopted  chan PartitionState
	metadata chan MetadataUpdate
	gate     chan struct{} // UpdateMetadata takes one, if not nil
}

func newHandler() *handler {
	return &handler{
		calls:    make(chan call, 100),
		adopted:  make(chan PartitionState, 100),
		metadata: make(chan MetadataUpdate, 100),
	}
}

// applies is a handler that ends at once, well.
func applies() *handler {
	h := newHandler()
	h.auto = func(PartitionState) error { return nil }
	return h
}

func (h *handler) ApplyPartition(ctx context.Context, s PartitionState) error {
	if h.auto != nil {
		return h.auto(s)
	}
	c := call{state: s, ctx: ctx, end: make(chan error, 1)}
	h.calls <- c
	select {
	case err := <-c.end:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *handler) StopReplica(ctx context.Context, topic string, id cluster.PartitionID, deleteData bool) error {
	return h.ApplyPartition(ctx, PartitionState{Topic: topic, Partition: id, Stop: true, Delete: deleteData})
}

func (h *handler) AdoptISR(s PartitionState) { h.adopted <- s }

func (h *handler) UpdateMetadata(u MetadataUpdate) {
	h.metadata <- u
	if h.gate != nil {
		<-h.gate
	}
}

// start runs broker 1 on the network with the daemons given. It is killed at
// the end of the test, if it has not ended.
func (n *network) start(ctx context.Context, h Handler, change func(*Config), daemons ...string) *Broker {
	n.t.Helper()
	cfg := Config{
		ID:               1,
		NodeUUID:         "node-1",
		AdvertiseControl: "b1",
		SessionTTL:       8 * time.Second,
		Handler:          h,
		Logger:           slog.New(slog.NewTextHandler(io.Discard, nil)),
		DialOptions:      []grpc.DialOption{grpc.WithContextDialer(n.dial)},
	}
	for _, d := range daemons {
		cfg.Daemons = append(cfg.Daemons, "passthrough:///"+d)
	}
	if change != nil {
		change(&cfg)
	}
	b, err := StartOn(ctx, n.listen("b1"), cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		b.Kill()
		if err := b.Wait(); err != nil && !errors.Is(err, ErrKilled) {
			n.t.Logf("broker ended: %v", err)
		}
	})
	return b
}

// controller is the other end of a stream of commands.
type controller struct {
	t      *testing.T
	conn   *grpc.ClientConn
	stream pb.CommandService_CommandsClient
	hello  *pb.Hello
	term   fencing.Term
	to     fencing.Target
	seq    int64
	heard  []*pb.CommandsResponse // read, and not asked for yet
}

// controller opens a stream to b1 and hears its hello.
func (n *network) controller(id string, ce cluster.Epoch) *controller {
	n.t.Helper()
	c := &controller{t: n.t, conn: n.conn("b1"), term: fencing.Term{ClusterUUID: testUUID, ControllerID: id, Epoch: ce}}
	ctx, cancel := context.WithCancel(context.Background())
	n.t.Cleanup(func() {
		cancel()
		c.conn.Close()
	})
	var err error
	if c.stream, err = pb.NewCommandServiceClient(c.conn).Commands(ctx); err != nil {
		n.t.Fatal(err)
	}
	c.hello = c.recv().GetHello()
	if c.hello == nil {
		n.t.Fatal("the broker did not say hello first")
	}
	c.to = fencing.Target{Broker: 1, Epoch: cluster.BrokerEpoch(c.hello.GetBrokerEpoch())}
	return c
}

func (c *controller) recv() *pb.CommandsResponse {
	c.t.Helper()
	m, err := c.stream.Recv()
	if err != nil {
		c.t.Fatalf("receive: %v", err)
	}
	return m
}

func (c *controller) send(r *pb.CommandsRequest) {
	c.t.Helper()
	if err := c.stream.Send(r); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

func (c *controller) command(cmd *pb.Command) int64 {
	c.t.Helper()
	c.seq++
	cmd.Sequence = c.seq
	cmd.Stamp = c.term.Stamp(c.to, 100)
	c.send(&pb.CommandsRequest{Request: &pb.CommandsRequest_Command{Command: cmd}})
	return c.seq
}

func (c *controller) leaderAndIsr(topics ...*pb.TopicStates) int64 {
	c.t.Helper()
	return c.command(&pb.Command{Body: &pb.Command_LeaderAndIsr{LeaderAndIsr: &pb.LeaderAndIsr{Topics: topics}}})
}

func (c *controller) updateMetadata(live *pb.LiveBrokers, topics ...*pb.TopicStates) int64 {
	c.t.Helper()
	return c.command(&pb.Command{Body: &pb.Command_UpdateMetadata{UpdateMetadata: &pb.UpdateMetadata{LiveBrokers: live, Topics: topics}}})
}

// ping sends one and waits for the answer; what else arrives is kept.
func (c *controller) ping(sequence int64) {
	c.t.Helper()
	c.send(&pb.CommandsRequest{Request: &pb.CommandsRequest_Ping{Ping: &pb.Ping{Sequence: sequence}}})
	for {
		m := c.recv()
		if m.GetPong().GetSequence() == sequence {
			return
		}
		c.heard = append(c.heard, m)
	}
}

// next is the next response of which pick makes something.
func next[T any](c *controller, pick func(*pb.CommandsResponse) (T, bool)) T {
	c.t.Helper()
	for i, m := range c.heard {
		if v, ok := pick(m); ok {
			c.heard = append(c.heard[:i], c.heard[i+1:]...)
			return v
		}
	}
	for {
		m := c.recv()
		if v, ok := pick(m); ok {
			return v
		}
		c.heard = append(c.heard, m)
	}
}

// ack waits for the answer to a command.
func (c *controller) ack(sequence int64, want pb.Refusal) *pb.CommandAck {
	c.t.Helper()
	ack := next(c, func(m *pb.CommandsResponse) (*pb.CommandAck, bool) {
		return m.GetAck(), m.GetAck().GetSequence() == sequence
	})
	if ack.GetRefusal() != want {
		c.t.Fatalf("command %d: %v, want %v", sequence, ack.GetRefusal(), want)
	}
	return ack
}

// outcome waits for one result message, which must be about one partition.
func (c *controller) outcome() *pb.PartitionOutcome {
	c.t.Helper()
	out := next(c, func(m *pb.CommandsResponse) ([]*pb.PartitionOutcome, bool) {
		return m.GetResults().GetOutcomes(), m.GetResults() != nil
	})
	if len(out) != 1 {
		c.t.Fatalf("%d outcomes in a message, want 1: %v", len(out), out)
	}
	return out[0]
}

func (c *controller) expect(le, pe int32, want pb.PartitionResult) {
	c.t.Helper()
	o := c.outcome()
	if o.GetResult() != want || o.GetLeaderEpoch() != le || o.GetPartitionEpoch() != pe {
		c.t.Fatalf("outcome %v, want %v for %d/%d", o, want, le, pe)
	}
}

// silent checks that no outcome has arrived that was not asked for.
func (c *controller) silent() {
	c.t.Helper()
	c.ping(1 << 40)
	for _, m := range c.heard {
		if m.GetResults() != nil {
			c.t.Fatalf("unexpected: %v", m)
		}
	}
}

var topicA = cluster.TopicID{15: 0xa}

func partition(index, le, pe int32, isr ...int32) *pb.TopicStates {
	return &pb.TopicStates{TopicId: topicA[:], Topic: "a", Partitions: []*pb.PartitionState{{
		Partition: index, Leader: 1, LeaderEpoch: le, PartitionEpoch: pe, Isr: append([]int32{1}, isr...), Replicas: []int32{1, 2, 3},
	}}}
}

func pid(index int32) cluster.PartitionID { return cluster.PartitionID{Topic: topicA, Index: index} }
