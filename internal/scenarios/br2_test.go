package scenarios

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// spoiled is what none of the daemons can read.
func spoiled(t *testing.T) map[string][]byte {
	binary := make([]byte, 1<<20)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range binary {
		binary[i] = byte(random.Uint32())
	}
	return map[string][]byte{
		"empty":             nil,
		"a brace":           []byte("{"),
		"text":              []byte(`{"node_uuid": "x", "nonce": "y"}`),
		"a MiB":             binary,
		"of another type":   encode(t, &pb.EpochRecord{Epoch: 5}),
		"cut short":         encode(t, &pb.BrokerRecord{NodeUuid: "x", Nonce: "y"})[:4],
		"not UTF-8":         append(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.BytesType), 2), 0xff, 0xff),
		"a list of nothing": bytes.Repeat([]byte{0}, 100),
	}
}

// Every kind of garbage, in every kind of key, on a running controller and
// through a failover. Each key is skipped and named, everything else works, and
// nobody names what was taken away or repaired.
func TestBR2Garbage(t *testing.T) {
	t.Parallel()
	numbers := []string{"01", "-1", "abc", "1099511627776", "+1", "1.0", "", " 1"}
	// Each returns keys and what they get.
	kinds := map[string]func(w *world, orders cluster.TopicID) map[string][]byte{
		"brokers": func(w *world, _ cluster.TopicID) map[string][]byte {
			out := map[string][]byte{}
			for i, v := range each(spoiled(w.t)) {
				out[w.keys.Broker(cluster.BrokerID(100+i))] = v
			}
			for _, n := range numbers {
				out[w.keys.Prefix()+"brokers/"+n] = encode(w.t, &pb.BrokerRecord{NodeUuid: "x", Nonce: "y"})
			}
			return out
		},
		"nodes": func(w *world, _ cluster.TopicID) map[string][]byte {
			out := map[string][]byte{}
			for i, v := range each(spoiled(w.t)) {
				out[w.keys.Node(cluster.BrokerID(100+i))] = v
			}
			for _, n := range numbers {
				out[w.keys.Prefix()+"nodes/"+n] = encode(w.t, &pb.NodeRecord{NodeUuid: "x"})
			}
			return out
		},
		"topics": func(w *world, orders cluster.TopicID) map[string][]byte {
			out := map[string][]byte{}
			for i, v := range each(spoiled(w.t)) {
				out[w.keys.Topic(fmt.Sprint("bad-", i))] = v
			}
			topic := func(edit func(*pb.TopicRecord)) []byte {
				r := &pb.TopicRecord{TopicId: bytes.Repeat([]byte{9}, 16), PartitionsWanted: 1, ReplicationFactor: 1, BlockSize: 16}
				edit(r)
				return encode(w.t, r)
			}
			out[w.keys.Topic("short-id")] = topic(func(r *pb.TopicRecord) { r.TopicId = r.TopicId[:4] })
			out[w.keys.Topic("zebra-with-an-id-of-another")] = topic(func(r *pb.TopicRecord) { r.TopicId = orders[:] })
			out[w.keys.Topic("no-blocks")] = topic(func(r *pb.TopicRecord) { r.BlockSize = 0 })
			out[w.keys.Topic("negative")] = topic(func(r *pb.TopicRecord) { r.PartitionsMade = -1 })
			out[w.keys.Topic("endless")] = topic(func(r *pb.TopicRecord) { r.PartitionsWanted = 1 << 30 })
			out[w.keys.Topic("a b")] = topic(func(*pb.TopicRecord) {})
			out[w.keys.Topic("..")] = topic(func(*pb.TopicRecord) {})
			return out
		},
		"partitions": func(w *world, orders cluster.TopicID) map[string][]byte {
			out := map[string][]byte{}
			fine := &pb.PartitionRecord{Replicas: []int32{0, 1}, Isr: []int32{0, 1}}
			block := func(edit func(*pb.PartitionRecord)) []byte {
				r := proto.Clone(fine).(*pb.PartitionRecord)
				edit(r)
				return encode(w.t, &pb.PartitionBlock{Partitions: []*pb.PartitionRecord{r}})
			}
			for i, v := range [][]byte{
				[]byte("{"), garbage,
				block(func(r *pb.PartitionRecord) { r.Partition = -1 }),
				block(func(r *pb.PartitionRecord) { r.Replicas = []int32{0, 0, 1} }),
				block(func(r *pb.PartitionRecord) { r.Replicas = nil }),
				block(func(r *pb.PartitionRecord) { r.Isr = nil }),
				block(func(r *pb.PartitionRecord) { r.Isr = []int32{0, 0} }),
				block(func(r *pb.PartitionRecord) { r.Leader = -7 }),
				block(func(r *pb.PartitionRecord) { r.LeaderEpoch = -1 }),
			} {
				id := cluster.TopicID{5, byte(i)}
				w.put(w.keys.Topic(fmt.Sprint("holder-", i)), encode(w.t, &pb.TopicRecord{
					TopicId: id[:], PartitionsWanted: 1, PartitionsMade: 1, ReplicationFactor: 1, BlockSize: 16,
				}))
				out[w.keys.Block(cluster.BlockID{Topic: id})] = v
			}
			out[w.keys.Blocks(orders)+"01"] = block(func(*pb.PartitionRecord) {})
			out[w.keys.Blocks(orders)+"x"] = block(func(*pb.PartitionRecord) {})
			out[w.keys.Prefix()+"partitions/short/0"] = block(func(*pb.PartitionRecord) {})
			return out
		},
		"tombstones": func(w *world, _ cluster.TopicID) map[string][]byte {
			out := map[string][]byte{
				w.keys.Prefix() + "tombstones/x": encode(w.t, &pb.TombstoneRecord{Topic: "x"}),
				w.keys.Prefix() + "tombstones/":  nil,
			}
			for i, v := range [][]byte{[]byte("{"), garbage, nil} {
				out[w.keys.Tombstone(cluster.TopicID{6, byte(i)})] = v
			}
			return out
		},
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			daemons := []*daemon{w.daemon("a"), w.daemon("b")}
			w.active(1, soon)
			brokers := w.startBrokers(3)
			orders := w.create("orders", 6, 3)
			w.converged(soon)
			bad := kind(w, orders)
			for key, value := range bad {
				w.put(key, value)
			}
			named := func() {
				t.Helper()
				for _, d := range daemons {
					missing := ""
					if !poll(soon, func() bool {
						problems := strings.Join(d.problems(), "\n")
						missing = ""
						for key := range bad {
							if !strings.Contains(problems, "key "+key+" is skipped") {
								missing = key
							}
						}
						return missing == "" && d.serving("")
					}) {
						t.Errorf("%s does not name %s, or does not serve", d.ID, missing)
					}
				}
			}
			named()
			w.assigned("payments", []int32{0, 1, 2})
			brokers[2].kill()
			w.revoke(w.sessionLease(2))
			w.await("broker 2 leads nothing", soon, func() bool { return w.leads(2) == 0 })
			w.resign() // the next one has read it all
			named()
			w.assigned("refunds", []int32{1, 0})
			brokers[2] = w.broker(2)
			w.registered(brokers[2])
			led := func() bool {
				return !slices.ContainsFunc(w.ledBy(orders, 6, cluster.NoLeader), func(cluster.PartitionID) bool { return true })
			}
			w.await("every partition has a leader", soon, led)
			for key := range bad {
				w.remove(key)
			}
			for _, d := range daemons {
				w.await(d.ID+" names no key any more", soon, func() bool { return !d.names("is skipped") })
			}
			if w.epoch() != 2 {
				t.Errorf("epoch %d", w.epoch())
			}
		})
	}
}

// each are the values of a map, in order of its keys.
func each(m map[string][]byte) (out [][]byte) {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		out = append(out, m[name])
	}
	return out
}

// Registrations that can be read, and that lead nowhere: named where that
// matters, and nobody else is held up.
func TestBR2AddressesThatLeadNowhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.daemon("a")
	w.daemon("b")
	w.active(1, soon)
	w.seatTo("a")
	w.startBrokers(3)
	w.create("orders", 6, 3)
	w.converged(soon)
	addresses := []string{"127.0.0.1:0", "127.0.0.1:70000", "127.0.0.1", "\x00", "no such host:1"}
	lease, err := w.client.Grant(w.call(), 60)
	if err != nil {
		t.Fatal(err)
	}
	for i, address := range append(addresses, "") {
		r := &pb.BrokerRecord{NodeUuid: fmt.Sprint("x-", i), Nonce: "y", ControlAddress: address, State: pb.BrokerState_BROKER_STATE_RUNNING}
		w.put(w.keys.Broker(cluster.BrokerID(100+i)), encode(t, r), clientv3.WithLease(lease.ID))
	}
	named := func(d *daemon) {
		t.Helper()
		for i := range addresses {
			w.await("a broker without an address is named", soon, func() bool { return d.names(fmt.Sprintf("broker %d gets no commands", 100+i)) })
		}
	}
	named(a)
	w.assigned("payments", []int32{0, 1, 2})
	w.converged(soon)
	w.resign()
	w.assigned("refunds", []int32{0, 1, 2})
	w.converged(soon)
	w.revoke(store.LeaseID(lease.ID))
	w.await("they are gone", soon, func() bool { return w.tape.brokers() == 3 })
	w.converged(soon)
}

// What a daemon does not know of a record it keeps when it writes it again.
func TestBR2UnknownFieldsAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a")
	w.active(1, soon)
	brokers := w.startBrokers(3)
	id := w.create("orders", 6, 3)
	w.converged(soon)
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 7)
	block := &pb.PartitionBlock{}
	blockKey, topicKey := w.keys.Block(cluster.BlockID{Topic: id}), w.keys.Topic("orders")
	read := func(key string, m proto.Message) {
		t.Helper()
		proto.Reset(m)
		if err := proto.Unmarshal(w.value(key), m); err != nil {
			t.Fatal(err)
		}
	}
	read(blockKey, block)
	block.ProtoReflect().SetUnknown(unknown)
	for _, p := range block.GetPartitions() {
		p.PartitionEpoch++
		p.ProtoReflect().SetUnknown(unknown)
	}
	w.put(blockKey, encode(t, block))
	topic := &pb.TopicRecord{}
	read(topicKey, topic)
	topic.ProtoReflect().SetUnknown(unknown)
	topic.PartitionsWanted = 8
	w.put(topicKey, encode(t, topic))
	w.await("the topic is complete", soon, func() (ok bool) {
		w.tape.look(func(im *cluster.Image) { ok = im.Topics["orders"].Made() == 8 })
		return ok
	})
	w.converged(soon)
	if r, err := w.shrink(w.call(), brokers, cluster.PartitionID{Topic: id}); err != nil || r[0].Reason != "" {
		t.Fatalf("alter the ISR: %+v, %v", r, err)
	}
	brokers[1].kill() // a change of all of them
	w.revoke(w.sessionLease(1))
	w.await("broker 1 leads nothing", soon, func() bool { return w.leads(1) == 0 })
	read(blockKey, block)
	if !bytes.Equal(block.ProtoReflect().GetUnknown(), unknown) {
		t.Error("the block has lost what was not known of it")
	}
	for _, p := range block.GetPartitions() {
		if p.GetPartition() < 6 && !bytes.Equal(p.ProtoReflect().GetUnknown(), unknown) {
			t.Errorf("partition %d has lost what was not known of it", p.GetPartition())
		}
	}
	if read(topicKey, topic); !bytes.Equal(topic.ProtoReflect().GetUnknown(), unknown) {
		t.Error("the topic has lost what was not known of it")
	}
}
