package recovery

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/epoch"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/memstore"
)

var (
	keys   = cluster.KeysOf("test")
	orders = cluster.TopicID{1}
	dead   = cluster.TopicID{2}
)

const partitions = 300

// desk is a store that holds what a snapshot has brought back: epoch 4, 300
// partitions in blocks of 2, each at leader epoch 10 and partition epoch 20 with
// brokers 1 to 3 in the ISR, and what is left of a deleted topic.
type desk struct {
	t *testing.T
	s *memstore.Store
}

func newDesk(t *testing.T) *desk {
	d := &desk{t, memstore.New()}
	ops := []store.Op{
		store.Put(keys.Cluster(), cluster.Encode(&pb.ClusterRecord{Uuid: "u", Format: 1})),
		store.Put(keys.ControllerEpoch(), cluster.Encode(&pb.EpochRecord{Epoch: 4})),
		store.Put(keys.Term(4), cluster.Encode(&pb.TermRecord{Epoch: 4, Controller: "a"})),
		store.Put(keys.Topic("orders"), cluster.Encode(&pb.TopicRecord{TopicId: orders[:], PartitionsWanted: partitions, PartitionsMade: partitions, ReplicationFactor: 3, BlockSize: 2})),
		store.Put(keys.Tombstone(dead), cluster.Encode(&pb.TombstoneRecord{Topic: "dead", Partitions: 2, LeaderEpoch: 7, ControllerEpoch: 4, Holders: []*pb.TombstoneHolder{{BrokerId: 1}}})),
	}
	for id := range cluster.BrokerID(3) {
		ops = append(ops, store.Put(keys.Node(id+1), cluster.Encode(&pb.NodeRecord{NodeUuid: fmt.Sprint(id), Nonce: "p"})),
			store.Put(keys.Broker(id+1), cluster.Encode(&pb.BrokerRecord{NodeUuid: fmt.Sprint(id), Nonce: "p"})))
	}
	for n := range int32(partitions / 2) {
		changes := map[int32]*cluster.Partition{}
		for i := 2 * n; i < 2*n+2; i++ {
			changes[i] = &cluster.Partition{
				Replicas: []cluster.BrokerID{1, 2, 3}, ISR: []cluster.BrokerID{1, 2, 3}, Leader: 1, LeaderEpoch: 10, PartitionEpoch: 20, ControllerEpoch: 4,
			}
		}
		ops = append(ops, store.Put(keys.Block(cluster.BlockID{Topic: orders, Index: n}), (*cluster.Block)(nil).With(changes, nil).Encode()))
	}
	for part := range slices.Chunk(ops, 100) {
		d.put(part...)
	}
	return d
}

func (d *desk) put(ops ...store.Op) {
	d.t.Helper()
	if r, err := d.s.Commit(d.t.Context(), store.Txn{If: []store.Cond{store.Missing("never/written")}, Then: ops}); err != nil || !r.Succeeded {
		d.t.Fatalf("%+v, %v", r, err)
	}
}

func (d *desk) config() Config {
	return Config{Options: Options{Step: 1000, Reason: "disk lost"}, Store: d.s, Keys: keys, Confirm: func(*Plan) error { return nil }}
}

func (d *desk) image() *cluster.Image {
	d.t.Helper()
	cfg := d.config()
	im, err := cfg.look(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return im
}

func at(i int32) cluster.PartitionID { return cluster.PartitionID{Topic: orders, Index: i} }

// remembered is what brokers 1 to 3 remember: epoch 9, and of some partitions
// newer states than the store holds.
func remembered() *Memory {
	m := &Memory{}
	for id := range cluster.BrokerID(3) {
		m.Reports = append(m.Reports, Report{Broker: id + 1, ClusterUUID: "u", Epoch: 7 + cluster.Epoch(id), BrokerEpoch: 1, Rev: 1})
	}
	state := func(id cluster.PartitionID, le, pe int32, leader cluster.BrokerID, isr ...cluster.BrokerID) fencing.PartitionState {
		return fencing.PartitionState{
			Topic: "orders", Partition: id, Leader: leader, ISR: isr, Replicas: []cluster.BrokerID{1, 2, 3},
			LeaderEpoch: cluster.LeaderEpoch(le), PartitionEpoch: cluster.PartitionEpoch(pe),
		}
	}
	m.Learn([]fencing.PartitionState{
		state(at(0), 10, 20, 1, 1, 2, 3),          // what the store holds
		state(at(1), 15, 30, 2, 2, 3),             // newer
		state(at(2), 10, 21, 1, 1),                // newer by partition epoch
		state(at(3), 9, 99, 3, 3),                 // older
		state(at(4), 12, 22, cluster.NoLeader, 3), // newer, nobody leads
		state(at(5), 12, 22, 9, 9),                // newer, moved to another broker
		state(at(6), 40, 0, cluster.NoLeader),     // stopped
		state(cluster.PartitionID{Topic: dead, Index: 1}, 30, 0, cluster.NoLeader),
		state(cluster.PartitionID{Topic: cluster.TopicID{9}}, 3, 0, 1, 1),
	})
	m.Learn([]fencing.PartitionState{state(at(1), 13, 25, 3, 3), state(at(6), 11, 24, 2, 2, 1)})
	return m
}

// raised checks that everything is as it should be after a recovery.
func (d *desk) raised() {
	d.t.Helper()
	im := d.image()
	if im.Recovery != nil || im.Epoch != 10 || len(im.Brokers) != 0 {
		d.t.Errorf("recovery %v, epoch %d, %d sessions", im.Recovery, im.Epoch, len(im.Brokers))
	}
	term := im.Terms[10]
	if term == nil || term.Record.GetEndCause() != pb.EndCause_END_CAUSE_RECOVERED || term.Record.GetEndReason() != "disk lost" {
		d.t.Errorf("term %v", term)
	}
	for _, want := range []struct {
		index  int32
		le, pe int32
		leader cluster.BrokerID
		isr    string
	}{
		{0, 1010, 1020, 1, "[1 2 3]"}, {1, 1015, 1030, 2, "[2 3]"}, {2, 1010, 1021, 1, "[1]"}, {3, 1010, 1099, 1, "[1 2 3]"},
		{4, 1012, 1022, cluster.NoLeader, "[3]"}, {5, 1012, 1022, 1, "[1 2 3]"}, {6, 1040, 1024, 2, "[2 1]"}, {299, 1010, 1020, 1, "[1 2 3]"},
	} {
		p := im.Partition(at(want.index))
		if int32(p.LeaderEpoch) != want.le || int32(p.PartitionEpoch) != want.pe || p.Leader != want.leader || fmt.Sprint(p.ISR) != want.isr ||
			p.ControllerEpoch != 10 || p.Cause != pb.ChangeCause_CHANGE_CAUSE_RECOVERED {
			d.t.Errorf("partition %d is %+v, want %+v", want.index, p, want)
		}
	}
	if got := im.Tombstones[dead].LeaderEpoch(); got != 1030 {
		d.t.Errorf("tombstone of leader epoch %d", got)
	}
	for id, n := range im.Nodes {
		if n.Record.GetNonce() != "" || n.Record.GetNodeUuid() == "" {
			d.t.Errorf("node %d: %v", id, n.Record)
		}
	}
	if len(im.Faults) > 0 {
		d.t.Errorf("faults %v", im.SortedFaults())
	}
}

// flaky is a store whose n-th transaction goes wrong, once.
type flaky struct {
	store.Store
	n       int
	applied bool // and is applied all the same
	end     context.CancelFunc
}

func (f *flaky) Commit(ctx context.Context, txn store.Txn) (store.Result, error) {
	if f.n--; f.n != 0 {
		return f.Store.Commit(ctx, txn)
	}
	if f.end != nil {
		defer f.end()
	}
	if f.applied {
		if r, err := f.Store.Commit(ctx, txn); err != nil || !r.Succeeded {
			return r, err
		}
	}
	return store.Result{}, store.ErrUnknown
}

// TestEveryStep: whatever transaction breaks off, with the command or without,
// the end is the same, each partition is raised once, and nobody takes the seat
// in between.
func TestEveryStep(t *testing.T) {
	most := 0
	for n := 1; ; n++ {
		reached := false
		for _, applied := range []bool{false, true} {
			for _, killed := range []bool{false, true} {
				d := newDesk(t)
				ctx, cancel := context.WithCancel(t.Context())
				f := &flaky{Store: d.s, n: n, applied: applied}
				if killed {
					f.end = cancel
				}
				cfg := d.config()
				cfg.Store = f
				plan, err := Make(d.image(), remembered(), cfg.Options)
				if err != nil || !plan.Needed {
					t.Fatal(plan, err)
				}
				_, err = cfg.insist(ctx, plan)
				cancel()
				reached = reached || f.n <= 0
				if killed && f.n <= 0 {
					if err == nil {
						t.Fatalf("step %d: it was killed", n)
					}
					if begun := d.image().Recovery != nil; begun {
						d.nobodyWins()
					}
					cfg.Store = d.s
					if plan, err = Make(d.image(), remembered(), cfg.Options); err == nil && plan.Needed {
						_, err = cfg.insist(t.Context(), plan)
					}
				}
				if err != nil {
					t.Fatalf("step %d, applied %v, killed %v: %v", n, applied, killed, err)
				}
				d.raised()
			}
		}
		if !reached {
			break
		}
		most = n
	}
	if most != 4 { // begin, the records in two, finish
		t.Errorf("%d transactions", most)
	}
}

// nobodyWins tries what a daemon would that has not seen the recovery yet, and
// one that has.
func (d *desk) nobodyWins() {
	d.t.Helper()
	im := d.image()
	for range 2 {
		txn := epoch.Mint(im, &pb.ControllerRecord{Id: "b"}, 1)
		if r, err := d.s.Commit(d.t.Context(), txn); err == nil && r.Succeeded {
			d.t.Fatal("a daemon has won during the recovery")
		}
		im.Recovery = nil
	}
}

// Many blocks go in transactions that the store takes, and progress counts each
// partition once.
func TestChunks(t *testing.T) {
	d := newDesk(t)
	big := strings.Repeat("x", 40<<10)
	for n := range 60 {
		id := cluster.TopicID{3, byte(n)}
		block := &pb.PartitionBlock{}
		for i := range int32(16) {
			block.Partitions = append(block.Partitions, &pb.PartitionRecord{Partition: i, Replicas: []int32{1}, Isr: []int32{1}, Leader: 1})
		}
		block.ProtoReflect().SetUnknown(append([]byte{0xba, 0x3e, 0x80, 0xc0, 0x02}, big...)) // field 999
		d.put(
			store.Put(keys.Topic(fmt.Sprint("t", n)), cluster.Encode(&pb.TopicRecord{TopicId: id[:], PartitionsWanted: 16, PartitionsMade: 16, ReplicationFactor: 1, BlockSize: 16})),
			store.Put(keys.Block(cluster.BlockID{Topic: id}), cluster.Encode(block)))
	}
	plan, err := Make(d.image(), remembered(), d.config().Options)
	if err != nil || plan.Partitions != partitions+60*16 {
		t.Fatalf("%+v, %v", plan, err)
	}
	last, chunks := 0, 0
	for c := range plan.Chunks(5, 1) {
		if err := c.Txn.Validate(); err != nil {
			t.Error(err)
		}
		last, chunks = c.Partitions, chunks+1
	}
	if last != plan.Partitions || chunks != 3 {
		t.Errorf("%d of %d partitions in %d transactions", last, plan.Partitions, chunks)
	}
}

// TestObstacles: what stands against a recovery, and what is no reason for one.
func TestObstacles(t *testing.T) {
	cases := []struct {
		name   string
		change func(*desk, *Memory, *Options)
		want   string // in the error; empty: there is none
		needed bool
	}{
		{"nothing", func(*desk, *Memory, *Options) {}, "", true},
		{"no cluster", func(d *desk, _ *Memory, _ *Options) { d.put(store.Delete(keys.Cluster())) }, "this is no cluster", true},
		{"a daemon is active", func(d *desk, _ *Memory, _ *Options) {
			lease, _ := d.s.Grant(t.Context(), time.Minute)
			d.put(store.PutLeased(keys.Controller(), cluster.Encode(&pb.ControllerRecord{Id: "a", Endpoint: "a:1"}), lease.ID))
		}, "daemon a at a:1 holds the seat", true},
		{"a seat without a lease", func(d *desk, _ *Memory, _ *Options) { d.put(store.Put(keys.Controller(), nil)) }, "", true},
		{"revision not bumped", func(d *desk, m *Memory, _ *Options) { m.Reports[0].Rev = 1000 }, "--bump-revision well above", true},
		{"a broker epoch above the revision", func(d *desk, m *Memory, _ *Options) { m.Reports[0].BrokerEpoch = 1000 }, "--bump-revision well above", true},
		{"another cluster", func(d *desk, m *Memory, _ *Options) { m.Reports[0].ClusterUUID = "v" }, "belongs to cluster v", true},
		{"a broker that never registered", func(d *desk, m *Memory, _ *Options) { m.Reports[0].ClusterUUID = "" }, "", true},
		{"a broker is silent", func(d *desk, m *Memory, _ *Options) { m.Reports[1].Err = errors.New("refused") }, "broker 2 has not answered", true},
		{"a broker was not asked", func(d *desk, m *Memory, _ *Options) { m.Reports = m.Reports[:2] }, "broker 3 has not answered", true},
		{"the operator speaks for it", func(d *desk, m *Memory, o *Options) { m.Reports, o.EpochAbove = m.Reports[:2], 9 }, "", true},
		{"a broker is gone for good", func(d *desk, m *Memory, _ *Options) {
			m.Reports = m.Reports[:2]
			d.put(store.Put(keys.Node(3), cluster.Encode(&pb.NodeRecord{NodeUuid: "n", Decommissioned: true})))
		}, "", true},
		{"no room", func(d *desk, _ *Memory, o *Options) { o.Step = math.MaxInt32 - 25 }, "leave no room for a step", true},
		{"only the epoch is higher", func(d *desk, m *Memory, _ *Options) { m.newest = nil }, "", true},
		{"only a leader epoch is higher", func(d *desk, m *Memory, _ *Options) {
			for i := range m.Reports {
				m.Reports[i].Epoch = 4
			}
		}, "", true},
		{"brokers know what the store holds", func(d *desk, m *Memory, _ *Options) {
			m.newest = nil
			for i := range m.Reports {
				m.Reports[i].Epoch = 4
			}
			m.Learn([]fencing.PartitionState{{Topic: "orders", Partition: at(0), LeaderEpoch: 10, PartitionEpoch: 20, ISR: []cluster.BrokerID{1}}})
		}, "", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d, m := newDesk(t), remembered()
			opts := d.config().Options
			c.change(d, m, &opts)
			plan, err := Make(d.image(), m, opts)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) || plan.Needed != c.needed {
				t.Errorf("needed %v, %v, want %q", plan.Needed, err, c.want)
			}
		})
	}
}

// TestSurvey: what is found is told.
func TestSurvey(t *testing.T) {
	d := newDesk(t)
	d.put(store.Put(keys.Block(cluster.BlockID{Topic: orders, Index: 149}), []byte{0xff}))
	p, err := Make(d.image(), remembered(), d.config().Options)
	if err != nil || p.Epoch != 10 || p.Partitions != partitions-2 || p.Ahead != 5 || p.Adopted != 4 || p.Lost != 30 || p.Resumed || p.Done != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	if len(p.Strangers) != 1 || len(p.Unreadable) != 1 || len(p.Reassigned) != 0 {
		t.Errorf("strangers %v, unreadable %v, reassigned %v", p.Strangers, p.Unreadable, p.Reassigned)
	}
	m := remembered()
	m.Learn([]fencing.PartitionState{{Topic: "orders", Partition: at(7), LeaderEpoch: 11, ISR: []cluster.BrokerID{3, 4}, Leader: 4, Replicas: []cluster.BrokerID{3, 4}}})
	p, _ = Make(d.image(), m, d.config().Options)
	if len(p.Reassigned) != 1 || p.Reassigned[0] != "orders/7: [3 4], not [1 2 3]" {
		t.Errorf("reassigned %v", p.Reassigned)
	}
	if got := p.raised(at(7), d.image().Partition(at(7))); fmt.Sprint(got.ISR) != "[3]" || got.Leader != cluster.NoLeader {
		t.Errorf("raised to %+v", got)
	}
}

// A recovery that has begun is gone on with under its epoch, unless somebody
// knows a higher one by now.
func TestResume(t *testing.T) {
	for _, c := range []struct {
		begun int64
		want  cluster.Epoch
	}{{10, 10}, {50, 50}, {8, 10}, {9, 10}, {0, 10}} {
		d := newDesk(t)
		d.put(store.Put(keys.Recovery(), cluster.Encode(&pb.RecoveryRecord{Epoch: c.begun, Reason: "first", BeganMs: 5})))
		opts := d.config().Options
		opts.Reason = ""
		p, err := Make(d.image(), remembered(), opts)
		if err != nil || p.Epoch != c.want || !p.Resumed {
			t.Errorf("epoch %d has begun: %+v, %v", c.begun, p, err)
		}
		if _, _, needed := p.Begin(1); needed != (cluster.Epoch(c.begun) != c.want) {
			t.Errorf("epoch %d has begun: begin anew %v", c.begun, needed)
		}
		var term pb.TermRecord
		if err := proto.Unmarshal(p.Finish(1, 9).Then[1].Value, &term); err != nil || term.GetEndReason() != "first" || term.GetBeganMs() != 5 || term.GetEndedMs() != 9 {
			t.Errorf("term %v, %v", &term, err)
		}
	}
}

// TestRun: the whole of it, with the operator's word instead of brokers.
func TestRun(t *testing.T) {
	d := newDesk(t)
	cfg := d.config()
	cfg.EpochAbove = 8
	var steps []string
	cfg.Progress = func(done, of int) { steps = append(steps, fmt.Sprintf("%d/%d", done, of)) }
	cfg.Confirm = func(*Plan) error { return errors.New("no") }
	before := d.image().Rev
	if p, err := Run(t.Context(), cfg); err == nil || err.Error() != "no" || p == nil || d.image().Rev != before {
		t.Fatalf("not confirmed: %+v, %v", p, err)
	}
	cfg.Confirm = func(*Plan) error { return nil }
	if _, err := Run(t.Context(), cfg); err != nil || d.image().Epoch != 9 || strings.Join(steps, " ") != "0/300 254/300 300/300" {
		t.Fatalf("epoch %d, steps %v, %v", d.image().Epoch, steps, err)
	}
	after := d.image().Rev
	if p, err := Run(t.Context(), cfg); err != nil || p.Needed || d.image().Rev != after {
		t.Errorf("a second time: %+v, %v", p, err)
	}
	// While a daemon holds the seat, and after it has gone.
	lease, err := d.s.Grant(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	d.put(store.PutLeased(keys.Controller(), cluster.Encode(&pb.ControllerRecord{Id: "a"}), lease.ID))
	cfg.EpochAbove, cfg.SeatWait = 20, 0
	if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "holds the seat") {
		t.Errorf("while a daemon is active: %v", err)
	}
	cfg.SeatWait = time.Minute
	time.AfterFunc(300*time.Millisecond, func() { _ = d.s.Revoke(context.Background(), lease.ID) })
	if _, err := Run(t.Context(), cfg); err != nil || d.image().Epoch != 21 {
		t.Errorf("epoch %d, %v", d.image().Epoch, err)
	}
	// Killed in the middle.
	ctx, cancel := context.WithCancel(t.Context())
	cfg.EpochAbove, cfg.Store = 30, &flaky{Store: d.s, n: 2, end: cancel}
	if _, err := Run(ctx, cfg); !errors.Is(err, ErrUnsettled) {
		t.Errorf("killed: %v", err)
	}
	cfg.Store = d.s
	if p, err := Run(t.Context(), cfg); err != nil || !p.Resumed || d.image().Epoch != 31 || d.image().Recovery != nil {
		t.Errorf("resumed: %+v, %v", p, err)
	}
}
