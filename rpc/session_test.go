package rpc

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/memstore"
)

// office is where brokers register: a daemon's image, and the store.
type office struct {
	t    *testing.T
	m    *memstore.Model
	im   *cluster.Image
	uuid string
}

func newOffice(t *testing.T) *office {
	o := &office{t: t, m: memstore.NewModel(), im: cluster.NewImage(keys), uuid: "u"}
	o.hand(store.Put(keys.Cluster(), cluster.Encode(&pb.ClusterRecord{Uuid: "u", Format: 1})))
	return o
}

func (o *office) view() View { return View{Image: o.im, ClusterUUID: o.uuid} }

func (o *office) look() {
	o.t.Helper()
	b, err := o.m.ChangesSince(keys.Prefix(), o.im.Rev)
	if err != nil {
		o.t.Fatal(err)
	}
	o.im.Apply(b)
}

func (o *office) hand(ops ...store.Op) {
	o.t.Helper()
	r, err := o.m.Txn(store.Txn{If: []store.Cond{store.Missing("never/written")}, Then: ops})
	if err != nil || !r.Succeeded {
		o.t.Fatalf("write by hand: %+v %v", r, err)
	}
	o.look()
}

// register goes through the steps of a registration, as the service does.
func (o *office) register(r *pb.RegisterRequest) (*cluster.Broker, int, error) {
	o.t.Helper()
	lease, err := o.m.Grant(0, DefaultSessionTTL)
	if err != nil {
		o.t.Fatal(err)
	}
	for steps := range 5 {
		next := DecideRegister(o.view(), r, lease.ID, 42)
		if next.Err != nil || next.Done != nil {
			return next.Done, steps, next.Err
		}
		if got, err := o.m.Txn(next.Txn); err != nil || !got.Succeeded {
			o.t.Fatalf("step %d: %+v %v", steps, got, err)
		}
		o.m.Revoke(next.Revoke)
		o.look()
	}
	o.t.Fatal("the registration never ends")
	return nil, 0, nil
}

func process(node, nonce string, first bool) *pb.RegisterRequest {
	return &pb.RegisterRequest{
		BrokerId: 1, NodeUuid: node, Nonce: nonce, First: first, ControlAddress: "b1:1", Rack: "r", DeathProbe: true,
		Endpoints: []*pb.Endpoint{{Listener: "data", Address: "b1:2"}},
	}
}

func wantsReason(t *testing.T, err error, want cluster.Reason) {
	t.Helper()
	if got := ReasonOf(err); got != want {
		t.Fatalf("answered %v, want %s", err, want)
	}
}

func TestRegisterCreates(t *testing.T) {
	o := newOffice(t)
	b, steps, err := o.register(process("n", "p1", true))
	if err != nil || steps != 1 {
		t.Fatal(steps, err)
	}
	want := &pb.BrokerRecord{
		NodeUuid: "n", Nonce: "p1", Lease: int64(b.Lease), ControlAddress: "b1:1", Rack: "r", DeathProbe: true,
		Endpoints: []*pb.Endpoint{{Listener: "data", Address: "b1:2"}}, State: pb.BrokerState_BROKER_STATE_RUNNING,
		MetadataScope: pb.MetadataScope_METADATA_SCOPE_ALL, RegisteredMs: 42,
	}
	if !proto.Equal(b.Record, want) || b.Lease == 0 || b.Epoch != cluster.BrokerEpoch(o.m.Rev()) {
		t.Errorf("broker %+v, want %v", b, want)
	}
	if got := o.im.Nodes[1].Record; !proto.Equal(got, &pb.NodeRecord{NodeUuid: "n", Nonce: "p1", ControlAddress: "b1:1"}) {
		t.Errorf("node %v", got)
	}
	o.m.Revoke(b.Lease)
	o.look()
	if o.im.Brokers[1] != nil || o.im.Nodes[1] == nil {
		t.Error("with the lease goes the broker's key, and nothing else")
	}
}

func TestRegister(t *testing.T) {
	cases := []struct {
		name  string
		then  func(o *office) // after process p1 of node n has registered
		asks  *pb.RegisterRequest
		steps int
		want  cluster.Reason // empty: registered
		again bool           // under a new epoch
	}{
		{"the answer was lost", nil, process("n", "p1", true), 0, "", false},
		{"the same process asks once more", nil, process("n", "p1", false), 0, "", false},
		{"the session was lost", func(o *office) { o.m.Revoke(o.im.Brokers[1].Lease) }, process("n", "p1", false), 1, "", true},
		{"a new process takes over", nil, process("n", "p2", true), 2, "", true},
		{"a new process after the session was lost", func(o *office) { o.m.Revoke(o.im.Brokers[1].Lease) }, process("n", "p2", true), 1, "", true},
		{"an older process comes back", func(o *office) { o.mustRegister(process("n", "p2", true)) }, process("n", "p1", false), 0, cluster.Replaced, false},
		{"an older process comes back while the newer one's session is lost", func(o *office) {
			o.mustRegister(process("n", "p2", true))
			o.m.Revoke(o.im.Brokers[1].Lease)
		}, process("n", "p1", false), 0, cluster.Replaced, false},
		{"another process holds the key of the one that registered last", func(o *office) {
			r := proto.Clone(o.im.Brokers[1].Record).(*pb.BrokerRecord)
			r.Nonce = "p0"
			o.hand(store.PutKeepLease(keys.Broker(1), cluster.Encode(r)))
		}, process("n", "p1", false), 0, cluster.Replaced, false},
		{"another node, while the broker lives", nil, process("m", "p2", true), 0, cluster.DuplicateBrokerRegistration, false},
		{"another node, while the broker is dead", func(o *office) { o.m.Revoke(o.im.Brokers[1].Lease) }, process("m", "p2", true), 0, cluster.DuplicateBrokerRegistration, false},
		{"decommissioned", func(o *office) {
			o.m.Revoke(o.im.Brokers[1].Lease)
			o.hand(store.Put(keys.Node(1), cluster.Encode(&pb.NodeRecord{NodeUuid: "n", Decommissioned: true})))
		}, process("n", "p2", true), 0, cluster.DuplicateBrokerRegistration, false},
		{"the broker's key is unreadable", func(o *office) { o.hand(store.PutKeepLease(keys.Broker(1), []byte{0xff})) }, process("n", "p1", false), 2, "", true},
		{"the broker's key is empty and on no lease", func(o *office) { o.hand(store.Put(keys.Broker(1), nil)) }, process("n", "p2", true), 2, "", true},
		{"the node's key is unreadable, the session stands", func(o *office) { o.hand(store.Put(keys.Node(1), []byte{0xff})) }, process("n", "p1", false), 0, "", false},
		{"the node's key is unreadable", func(o *office) {
			o.m.Revoke(o.im.Brokers[1].Lease)
			o.hand(store.Put(keys.Node(1), []byte{0xff}))
		}, process("n", "p1", false), 0, cluster.KafkaStorageError, false},
		{"the node's key is gone", func(o *office) {
			o.m.Revoke(o.im.Brokers[1].Lease)
			o.hand(store.Delete(keys.Node(1)))
		}, process("m", "p2", true), 1, "", true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := newOffice(t)
			first := o.mustRegister(process("n", "p1", true))
			if c.then != nil {
				c.then(o)
				o.look()
			}
			before := o.m.Rev()
			b, steps, err := o.register(c.asks)
			if c.want != "" {
				wantsReason(t, err, c.want)
				if o.m.Rev() != before {
					t.Error("something was written")
				}
				return
			}
			if err != nil || steps != c.steps {
				t.Fatalf("%d steps, want %d: %v", steps, c.steps, err)
			}
			if again := b.Epoch > first.Epoch; again != c.again || b.Epoch < first.Epoch {
				t.Errorf("epoch %d after %d", b.Epoch, first.Epoch)
			}
			if b.Record.GetNonce() != c.asks.GetNonce() || c.again && o.im.Nodes[1].Record.GetNonce() != c.asks.GetNonce() {
				t.Errorf("broker %v, node %v", b.Record, o.im.Nodes[1].Record)
			}
		})
	}
}

func (o *office) mustRegister(r *pb.RegisterRequest) *cluster.Broker {
	o.t.Helper()
	b, _, err := o.register(r)
	if err != nil {
		o.t.Fatal(err)
	}
	return b
}

// A take-over deletes the older process's key, and revokes its lease, which
// would be left behind.
func TestTakeOverRevokesTheOlderLease(t *testing.T) {
	o := newOffice(t)
	old := o.mustRegister(process("n", "p1", true))
	o.mustRegister(process("n", "p2", true))
	if _, err := o.m.Renew(0, old.Lease); !errors.Is(err, store.ErrLeaseNotFound) {
		t.Errorf("renewing the older lease: %v", err)
	}
}

// A step of a registration that was decided from an older image changes
// nothing.
func TestRegisterIsGuarded(t *testing.T) {
	cases := []struct {
		name  string
		until func(o *office)
		asks  *pb.RegisterRequest
		then  func(o *office)
	}{
		{"create: somebody has registered", func(*office) {}, process("n", "p1", true), func(o *office) { o.mustRegister(process("m", "q", true)) }},
		{"create: the node was given away", func(*office) {}, process("n", "p1", true), func(o *office) {
			o.hand(store.Put(keys.Node(1), cluster.Encode(&pb.NodeRecord{NodeUuid: "m"})))
		}},
		{"create: the cluster key is gone", func(*office) {}, process("n", "p1", true), func(o *office) { o.hand(store.Delete(keys.Cluster())) }},
		{"take-over: a third process was faster", func(o *office) { o.mustRegister(process("n", "p1", true)) }, process("n", "p2", true), func(o *office) {
			o.mustRegister(process("n", "p3", true))
		}},
		{"take-over: the node was given away", func(o *office) { o.mustRegister(process("n", "p1", true)) }, process("n", "p2", true), func(o *office) {
			o.hand(store.Put(keys.Node(1), cluster.Encode(&pb.NodeRecord{NodeUuid: "m"})))
		}},
		{"new addresses: the active has marked the broker", func(o *office) { o.mustRegister(process("n", "p1", true)) }, movedTo(1, "new:1"), func(o *office) {
			r := proto.Clone(o.im.Brokers[1].Record).(*pb.BrokerRecord)
			r.Unreachable = true
			o.hand(store.PutKeepLease(keys.Broker(1), cluster.Encode(r)))
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := newOffice(t)
			c.until(o)
			lease, _ := o.m.Grant(0, DefaultSessionTTL)
			step := DecideRegister(o.view(), c.asks, lease.ID, 1)
			if step.Err != nil || step.Done != nil {
				t.Fatal(step)
			}
			c.then(o)
			before := o.m.Rev()
			if r, err := o.m.Txn(step.Txn); err != nil || r.Succeeded || o.m.Rev() != before {
				t.Errorf("%+v %v", r, err)
			}
		})
	}
}

// movedTo is a process with other addresses.
func movedTo(version int64, address string) *pb.RegisterRequest {
	r := process("n", "p1", false)
	r.AddressVersion, r.ControlAddress = version, address
	r.Endpoints = []*pb.Endpoint{{Listener: "data", Address: address}}
	return r
}

// New addresses take the place of the old ones in the key of the process: the
// epoch, the lease and what the active has written there stay.
func TestRegisterNewAddresses(t *testing.T) {
	o := newOffice(t)
	old := o.mustRegister(process("n", "p1", true))
	marked := proto.Clone(old.Record).(*pb.BrokerRecord)
	marked.Unreachable, marked.State = true, pb.BrokerState_BROKER_STATE_DRAINING
	o.hand(store.PutKeepLease(keys.Broker(1), cluster.Encode(marked)))
	b, steps, err := o.register(movedTo(2, "new:1"))
	if err != nil || steps != 1 {
		t.Fatal(steps, err)
	}
	want := proto.Clone(marked).(*pb.BrokerRecord)
	want.ControlAddress, want.AddressVersion, want.DeathProbe = "new:1", 2, true
	want.Endpoints = []*pb.Endpoint{{Listener: "data", Address: "new:1"}}
	if !proto.Equal(b.Record, want) || b.Epoch != old.Epoch || b.Lease != old.Lease {
		t.Errorf("broker %+v, want %v of epoch %d on lease %x", b, want, old.Epoch, old.Lease)
	}
	if got := o.im.Nodes[1].Record; got.GetControlAddress() != "new:1" || got.GetNonce() != "p1" {
		t.Errorf("node %v", got)
	}
	before := o.m.Rev()
	for _, late := range []*pb.RegisterRequest{movedTo(2, "new:1"), movedTo(1, "late:1"), process("n", "p1", true)} {
		if b, _, err := o.register(late); err != nil || b.Record.GetControlAddress() != "new:1" || o.m.Rev() != before {
			t.Errorf("version %d after 2: %v, %v", late.GetAddressVersion(), b.Record, err)
		}
	}
	o.m.Revoke(b.Lease)
	o.look()
	if o.im.Brokers[1] != nil {
		t.Error("the key is on no lease any more")
	}
	if b := o.mustRegister(movedTo(2, "new:1")); b.Record.GetAddressVersion() != 2 || b.Draining() {
		t.Errorf("a new session begins with %v", b.Record)
	}
}

func TestRegisterKeepsWhatItDoesNotKnow(t *testing.T) {
	o := newOffice(t)
	newer := protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 42)
	o.hand(store.Put(keys.Node(1), append(cluster.Encode(&pb.NodeRecord{NodeUuid: "n"}), newer...)))
	o.mustRegister(process("n", "p1", false))
	if got := o.im.Nodes[1].Record.ProtoReflect().GetUnknown(); string(got) != string(newer) {
		t.Errorf("unknown fields %x", got)
	}
}

// Only a daemon that is sure of its cluster registers brokers, and only those
// of its cluster.
func TestRegisterChecksTheCluster(t *testing.T) {
	cases := []struct {
		name string
		then func(o *office)
		uuid string
		want cluster.Reason
	}{
		{"a new broker", func(*office) {}, "", ""},
		{"a broker of the cluster", func(*office) {}, "u", ""},
		{"a broker of another cluster", func(*office) {}, "v", cluster.InconsistentClusterID},
		{"a daemon that knows nothing yet", func(o *office) { o.uuid = "" }, "", cluster.NotController},
		{"the cluster key is gone", func(o *office) { o.hand(store.Delete(keys.Cluster())) }, "u", cluster.NotController},
		{"the cluster key was changed", func(o *office) {
			o.hand(store.Put(keys.Cluster(), cluster.Encode(&pb.ClusterRecord{Uuid: "v", Format: 1})))
		}, "v", cluster.NotController},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := newOffice(t)
			c.then(o)
			r := process("n", "p", true)
			r.ClusterUuid = c.uuid
			_, _, err := o.register(r)
			wantsReason(t, err, c.want)
		})
	}
}

func TestCheckRegister(t *testing.T) {
	cases := []struct {
		name   string
		change func(*pb.RegisterRequest)
		ok     bool
	}{
		{"as it should be", func(*pb.RegisterRequest) {}, true},
		{"broker 0", func(r *pb.RegisterRequest) { r.BrokerId = 0 }, true},
		{"negative broker", func(r *pb.RegisterRequest) { r.BrokerId = -1 }, false},
		{"no node", func(r *pb.RegisterRequest) { r.NodeUuid = "" }, false},
		{"no nonce", func(r *pb.RegisterRequest) { r.Nonce = "" }, false},
		{"no address", func(r *pb.RegisterRequest) { r.ControlAddress = "" }, false},
		{"shortest session", func(r *pb.RegisterRequest) { r.SessionTtlMs = 4000 }, true},
		{"longest session", func(r *pb.RegisterRequest) { r.SessionTtlMs = 60_000 }, true},
		{"session too short", func(r *pb.RegisterRequest) { r.SessionTtlMs = 3999 }, false},
		{"session too long", func(r *pb.RegisterRequest) { r.SessionTtlMs = 60_001 }, false},
		{"negative address version", func(r *pb.RegisterRequest) { r.AddressVersion = -1 }, false},
		{"negative session", func(r *pb.RegisterRequest) { r.SessionTtlMs = -1 }, false},
		{"absurd session", func(r *pb.RegisterRequest) { r.SessionTtlMs = 1<<63 - 1 }, false},
		{"session whose nanoseconds wrap around to 10 s", func(r *pb.RegisterRequest) { r.SessionTtlMs = 18_446_744_083_710 }, false},
	}
	for _, c := range cases {
		r := process("n", "p", true)
		c.change(r)
		err := checkRegister(r)
		if (err == nil) != c.ok || err != nil && status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A renewal is good for the incarnation that holds the key, and for no other.
func TestCheckSession(t *testing.T) {
	o := newOffice(t)
	old := o.mustRegister(process("n", "p1", true))
	b := o.mustRegister(process("n", "p2", true))
	cases := []struct {
		name  string
		id    cluster.BrokerID
		epoch cluster.BrokerEpoch
		nonce string
		want  cluster.Reason
	}{
		{"its own", 1, b.Epoch, "p2", ""},
		{"its own of an earlier epoch", 1, old.Epoch, "p2", cluster.StaleBrokerEpoch},
		{"the older process", 1, old.Epoch, "p1", cluster.Replaced},
		{"the older process with the new epoch", 1, b.Epoch, "p1", cluster.Replaced},
		{"a broker that never registered", 2, 5, "p", cluster.StaleBrokerEpoch},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := CheckSession(o.im, c.id, c.epoch, c.nonce)
			wantsReason(t, err, c.want)
		})
	}
	o.m.Revoke(b.Lease)
	o.look()
	wantsReason(t, CheckSession(o.im, 1, b.Epoch, "p2"), cluster.StaleBrokerEpoch)
	wantsReason(t, CheckSession(o.im, 1, old.Epoch, "p1"), cluster.Replaced)
	o.hand(store.Put(keys.Node(1), []byte{0xff}))
	wantsReason(t, CheckSession(o.im, 1, b.Epoch, "p2"), cluster.StaleBrokerEpoch)
}
